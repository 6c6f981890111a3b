package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// summary says of each cell how many whole attempts it has and how the last
// ended, or why it was skipped.
func (b *bay) summary() string {
	b.t.Helper()
	results := b.results()
	var lines []string
	for _, c := range b.plan.Cells {
		r := results[c.ID]
		line := c.ID + ": never run"
		if r.Skipped != nil {
			line = c.ID + ": skipped, " + string(r.Skipped.Class)
		}
		whole := slices.DeleteFunc(slices.Clone(r.Attempts), func(a evidence.MeasuredAttempt) bool { return a.Cut })
		if n := len(whole); n > 0 {
			line = fmt.Sprintf("%s: %d attempts", c.ID, n)
			for _, m := range whole[n-1].Measurements {
				line += fmt.Sprintf(" %s=%v", m.Subject, m.Value)
			}
			for _, p := range whole[n-1].Problems {
				line += " " + string(p.Class)
			}
		}
		lines = append(lines, line)
	}
	gates := make(map[string]string)
	for _, r := range b.events(evidence.EventGate) {
		gates[r.Phase] = fmt.Sprintf("gate %s: %t", r.Phase, r.Gate.Met)
	}
	for _, p := range b.plan.Phases {
		lines = append(lines, gates[p.Name])
	}
	return strings.Join(lines, "\n")
}

// Killed at any moment and resumed, a run gives what an undisturbed one does.
func TestKilledAtAnyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		first := testOf("first", "one", evidence.ScopeNode, nodes)
		first.Retries = 1
		recovery := testOf("recovery", "two", evidence.ScopeFleet, []string{"n01", "n03"})
		recovery.Hazard, recovery.Faults = "breaks_things", []evidence.Fault{breaking(2*time.Second, 5*time.Second, `{"inject":["break"],"undo":["mend"]}`, "n03")}
		plan := planOf(nodes, first, recovery,
			testOf("later", "three", evidence.ScopeNode, nodes), testOf("whole", "three", evidence.ScopeFleet, nodes))
		plan.Phases[0].Gate.OnFail = "exclude"
		plan.Parallel = 2
		plan.Captures = evidence.Captures{Commands: [][]string{{"snapshot"}}, Deadline: evidence.Duration(time.Minute)}
		begin := func() *bay {
			b := newBay(t, plan)
			b.set = func(o *Options) { o.Allow = []string{"breaks_things"} }
			b.check.drive = func(ctx context.Context, bench checks.Bench) error {
				if len(bench.Test().Faults) > 0 {
					return afterFaults(ctx, bench)
				}
				return work(ctx, bench)
			}
			b.rack.on("n01", "work", lasting(3*time.Second, "1"))
			b.rack.on("n02", "work", printing("0"))
			return b
		}
		b := begin()
		var kills []string
		copied := make(chan error, 100)
		// 333 ms does not divide what commands take, and the last copies fall
		// on instants at which records are written.
		for i := range 40 {
			dir := fmt.Sprintf("%s-%02d", b.dir, i)
			kills = append(kills, dir)
			at := time.Duration(i+1) * 333 * time.Millisecond
			if i >= 30 {
				at = time.Duration(i-29)*time.Second + 17*time.Millisecond
			}
			time.AfterFunc(at, func() { copied <- os.CopyFS(dir, os.DirFS(b.dir)) })
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		undisturbed := b.summary()
		if !strings.Contains(undisturbed, "first/n02.r1: 2 attempts n02=0") || !strings.Contains(undisturbed, "later/n02.r1: skipped, excluded") {
			t.Fatalf("the scenario is not what it should be:\n%s", undisturbed)
		}
		for range kills {
			if err := <-copied; err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range kills {
			killed := begin()
			killed.dir = dir
			if err := killed.run(t.Context()); err != nil {
				t.Errorf("%s: %v", dir, err)
				continue
			}
			if got := killed.summary(); got != undisturbed {
				t.Errorf("%s:\n%s\nundisturbed:\n%s", dir, got, undisturbed)
			}
			killed.checkFaults()
		}
	})
}

func TestSealedRunIsResumedForItsClassesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		plan := planOf(nodes, testOf("one", "one", evidence.ScopeNode, nodes), testOf("two", "two", evidence.ScopeNode, nodes))
		plan.Phases[0].Gate.OnFail = "stop"
		b := newBay(t, plan)
		b.rack.kill("n02", evidence.ClassTCP)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "at first", b.summary(), strings.Join([]string{
			"one/n01.r1: 1 attempts n01=1", "one/n02.r1: skipped, unreachable-tcp", "one/n03.r1: 1 attempts n03=1",
			"two/n01.r1: skipped, not-run", "two/n02.r1: skipped, not-run", "two/n03.r1: skipped, not-run",
			"gate one: false", "",
		}, "\n"))
		store := b.open()
		results := checks.Measure(checks.Catalog{b.check}, plan, store.Records(), store.FS())
		if err := store.Seal(evidence.NewDerived(results, evidence.Verdict{MediaType: evidence.MediaVerdict, Outcome: evidence.Inconclusive})); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		b.rack.revive("n02", "boot-n02")
		sent := len(b.rack.log)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "sent without being asked", len(b.rack.log)-sent, 0)
		b.set = func(o *Options) { o.RetryClasses = []evidence.Class{evidence.ClassTCP} }
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "asked for unreachable", b.summary(), strings.Join([]string{
			"one/n01.r1: 1 attempts n01=1", "one/n02.r1: 1 attempts n02=1", "one/n03.r1: 1 attempts n03=1",
			"two/n01.r1: 1 attempts n01=1", "two/n02.r1: 1 attempts n02=1", "two/n03.r1: 1 attempts n03=1",
			"gate one: true", "gate two: true",
		}, "\n"))
	})
}

// A fault breaks a node that is in no cell of its test: the cells that need
// it wait for each other.
func TestFaultsLockTheirNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		recovery := testOf("recovery", "one", evidence.ScopeNode, nodes[:2])
		recovery.Hazard, recovery.Faults = "h", []evidence.Fault{breaking(0, 10*time.Second, `{"inject":["break"],"undo":["mend"]}`, "n03")}
		b := newBay(t, planOf(nodes, recovery, testOf("other", "one", evidence.ScopeNode, nodes)))
		b.set = func(o *Options) { o.Allow = []string{"h"} }
		b.check.drive = afterFaults
		broken := 0
		b.rack.on("n03", "break", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			if broken++; broken > 1 {
				t.Error("broken twice")
			}
			return code(0)
		})
		b.rack.on("n03", "mend", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			broken--
			return code(0)
		})
		b.rack.on("n03", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			if broken != 0 {
				t.Error("n03 works while it is broken")
			}
			return printing("1")(ctx, task, out, errs)
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "attempts", len(b.attempts()), 5)
		want(t, "injections", len(b.rack.calls(running("break"))), 2)
	})
}

func TestPlansThatCannotBeRun(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*bay)
		says string
	}{
		{"no check", func(b *bay) { b.check.name = "other" }, `test one: this build has no check "fake"`},
		{"check of another version", func(b *bay) { b.plan.Tests[0].CheckVersion = 7 }, "check fake has version 1 here and 7 in the plan"},
		{"cell without test", func(b *bay) { b.plan.Cells[0].Test = "two" }, `of test "two", which the plan does not have`},
		{"cell outside the fleet", func(b *bay) { b.plan.Cells[0].Nodes = "elsewhere" }, `node "elsewhere", which the fleet does not have`},
		{"test without deadline", func(b *bay) { b.plan.Tests[0].Deadline = 0 }, "test one has no deadline"},
		{"captures without deadline", func(b *bay) { b.plan.Captures.Commands = [][]string{{"snapshot"}} }, "captures have no deadline"},
		{"capture without command", func(b *bay) {
			b.plan.Captures = evidence.Captures{Commands: [][]string{{"snapshot"}, {}}, Deadline: evidence.Duration(time.Minute)}
		}, "one of its captures has no command"},
		{"no judge", func(b *bay) { b.set = func(o *Options) { o.Judge = nil } }, "judge are required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
				test.set(b)
				store := b.open()
				err := Run(t.Context(), b.options(store))
				if err == nil || errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("want an error with %q: %v", test.says, err)
				}
				want(t, "sent", len(b.rack.log), 0)
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A disk of ours that fails in the last cell of a run whose gates were decided
// before must not look like the run's end.
func TestOurOwnFaultInTheLastCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		b.rack.on("n01", "work", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			return evidence.Exit{Class: evidence.ClassSignal, Detail: "KILL"}
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.rack.on("n01", "stuck", func(ctx context.Context, _ evidence.Task, _, _ io.Writer) evidence.Exit {
			if err := os.Mkdir(b.dir+"/cells/one/n01.r1/2/raw/stuck.n01/exit.json", 0o755); err != nil {
				t.Error(err)
			}
			_ = wait(context.WithoutCancel(ctx), time.Hour)
			return code(0)
		})
		b.check.drive = func(ctx context.Context, bench checks.Bench) error {
			_, err := bench.Exec(ctx, "stuck", checks.Command{Node: "n01", Argv: []string{"stuck"}})
			return err
		}
		b.set = func(o *Options) { o.RetryClasses = []evidence.Class{evidence.ClassSignal} }
		err := b.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "exit.json") || !strings.Contains(err.Error(), "resumable") {
			t.Errorf("want the disk's error: %v", err)
		}
		_ = wait(t.Context(), time.Hour)
	})
}

func TestStartCapturesThatAKillLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(2)
		plan := planOf(nodes, testOf("one", "one", evidence.ScopeNode, nodes))
		plan.Captures = evidence.Captures{Commands: [][]string{{"first"}, {"second"}}, Deadline: evidence.Duration(time.Minute)}
		begin := func() *bay {
			b := newBay(t, plan)
			for _, node := range nodes {
				b.rack.on(node, "first", lasting(2*time.Second, "1"))
				b.rack.on(node, "second", lasting(2*time.Second, "2"))
				b.rack.on(node, "work", lasting(10*time.Second, "1"))
			}
			return b
		}
		b := begin()
		early, late := b.dir+"-early", b.dir+"-late"
		copied := make(chan error, 2)
		time.AfterFunc(3*time.Second, func() { copied <- os.CopyFS(early, os.DirFS(b.dir)) }) // among the captures
		time.AfterFunc(9*time.Second, func() { copied <- os.CopyFS(late, os.DirFS(b.dir)) })  // among the cells
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-copied; err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{early, late} {
			killed := begin()
			killed.dir = dir
			if err := killed.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range killed.events(evidence.EventCapture) {
				// The killed process left the directory of one that it was making.
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(r.Path, "captures/one/"), ".2"))
			}
			slices.Sort(got)
			want(t, dir, got, []string{
				"end/n01/1-first", "end/n01/2-second", "end/n02/1-first", "end/n02/2-second",
				"start/n01/1-first", "start/n01/2-second", "start/n02/1-first", "start/n02/2-second",
			})
			starts := killed.events(evidence.EventAttemptStart)
			for _, r := range killed.events(evidence.EventCapture) {
				if strings.Contains(r.Path, "/start/") && r.Seq > starts[0].Seq {
					t.Errorf("%s: %s was captured after the first cell began", dir, r.Path)
				}
			}
		}
	})
}
