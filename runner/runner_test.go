package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

func TestSoakOf72HoursLosesOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(32)
		soak := testOf("soak", "soak", evidence.ScopeNode, nodes)
		soak.Duration, soak.Deadline = evidence.Duration(72*time.Hour), evidence.Duration(73*time.Hour)
		b := newBay(t, planOf(nodes,
			testOf("inventory", "inventory", evidence.ScopeNode, nodes),
			soak,
			testOf("allreduce", "fabric", evidence.ScopeFleet, nodes)))
		for _, n := range nodes {
			b.rack.on(n, "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
				if strings.Contains(task.Mark, "/soak/") {
					return lasting(72*time.Hour, "1")(ctx, task, out, errs)
				}
				return printing("1")(ctx, task, out, errs)
			})
		}
		dies := time.AfterFunc(40*time.Hour, func() { b.rack.kill("n07", evidence.ClassTCP) })
		defer dies.Stop()

		start := time.Now()
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 72*time.Hour || took > 72*time.Hour+2*time.Minute {
			t.Errorf("the run took %s", took)
		}
		results := b.results()
		for _, n := range nodes {
			id := evidence.CellID("soak", []string{n}, 1)
			a := results[id].Attempts
			if len(a) != 1 {
				t.Fatalf("%s has %d attempts", id, len(a))
			}
			if n == "n07" {
				want(t, "problems of n07", a[0].Problems, []evidence.Problem{{Node: "n07", Step: "work", Class: evidence.ClassLost, Detail: "connection reset"}})
				if took := a[0].End.Sub(a[0].Start); took.Round(time.Hour) != 40*time.Hour {
					t.Errorf("n07's soak took %s", took)
				}
				continue
			}
			if len(a[0].Problems)+len(a[0].Unmeasured) > 0 || len(a[0].Measurements) != 1 {
				t.Errorf("%s: %+v", id, a[0])
			}
		}
		fleet := results[evidence.CellID("allreduce", nodes, 1)]
		if fleet.Skipped == nil || fleet.Skipped.Node != "n07" || fleet.Skipped.Class != evidence.ClassTCP {
			t.Errorf("the whole-set cell was not skipped because of n07: %+v", fleet)
		}
		var met []bool
		for _, g := range b.events(evidence.EventGate) {
			met = append(met, g.Gate.Met)
		}
		want(t, "gates", met, []bool{true, false, false})
	})
}

func TestGates(t *testing.T) {
	nodes := names(3)
	for _, test := range []struct {
		require, onFail string
		skipped         map[string]evidence.Class
	}{
		{"all", "continue", nil},
		{"66%", "stop", nil},
		{"all", "stop", map[string]evidence.Class{
			"later/n01.r1": evidence.ClassNotRun, "later/n02.r1": evidence.ClassNotRun, "later/n03.r1": evidence.ClassNotRun,
			"whole": evidence.ClassNotRun, "last/n01.r1": evidence.ClassNotRun,
		}},
		{"all", "exclude", map[string]evidence.Class{"later/n02.r1": evidence.ClassExcluded, "whole": evidence.ClassExcluded}},
	} {
		t.Run(test.require+" "+test.onFail, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBay(t, planOf(nodes,
					testOf("first", "one", evidence.ScopeNode, nodes),
					testOf("later", "two", evidence.ScopeNode, nodes),
					testOf("whole", "two", evidence.ScopeFleet, nodes),
					testOf("last", "three", evidence.ScopeNode, nodes[:1])))
				b.plan.Phases[0].Gate = evidence.Gate{Require: test.require, OnFail: test.onFail}
				b.rack.on("n02", "work", printing("0"))
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				results := b.results()
				for _, c := range b.plan.Cells {
					class, skip := test.skipped[c.ID]
					if c.Test == "whole" {
						class, skip = test.skipped["whole"]
					}
					r := results[c.ID]
					switch {
					case skip && (r.Skipped == nil || r.Skipped.Class != class || len(r.Attempts) > 0):
						t.Errorf("%s: want skipped as %s: %+v", c.ID, class, r)
					case skip && !strings.Contains(r.Skipped.Detail, "phase one"):
						t.Errorf("%s: skipped because of %q, which does not name the phase", c.ID, r.Skipped.Detail)
					case !skip && len(r.Attempts) != 1:
						t.Errorf("%s: want one attempt: %+v", c.ID, r)
					}
				}
				for i, r := range b.records {
					if r.Event == evidence.EventSkip && b.records[i-1].Event != evidence.EventGate && b.records[i-1].Event != evidence.EventSkip {
						t.Errorf("record %d: a skip before its gate was recorded", i)
					}
				}
				// Resuming a complete run sends nothing and records nothing but itself.
				sent, recorded := len(b.rack.log), len(b.records)
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				want(t, "commands", len(b.rack.log), sent)
				want(t, "records", len(b.records), recorded+1)
			})
		})
	}
}

func TestSoftStopAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(4)
		b := newBay(t, planOf(nodes, testOf("soak", "one", evidence.ScopeNode, nodes)))
		b.plan.Parallel = 2
		b.plan.Tests[0].Deadline = evidence.Duration(3 * time.Hour)
		for _, n := range nodes {
			b.rack.on(n, "work", lasting(2*time.Hour, "1"))
		}
		stop := make(chan struct{})
		timer := time.AfterFunc(time.Hour, func() { close(stop) })
		defer timer.Stop()
		b.set = func(o *Options) { o.Stop = stop }
		if err := b.run(t.Context()); !errors.Is(err, ErrStopped) {
			t.Fatalf("want ErrStopped: %v", err)
		}
		want(t, "attempts", slices.Sorted(slices.Values(b.attempts())), []string{"soak/n01.r1", "soak/n02.r1"})
		want(t, "last record", b.records[len(b.records)-1].Event, evidence.EventStop)
		if len(b.events(evidence.EventGate))+len(b.events(evidence.EventPhaseEnd)) > 0 {
			t.Error("the phase ended although it was stopped")
		}
		var waiting []string
		for _, p := range b.progress {
			if p.Kind == ProgressWaiting {
				waiting = p.Running
			}
		}
		want(t, "waits for", waiting, []string{"soak/n01.r1", "soak/n02.r1"})

		b.set = nil
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "attempts", slices.Sorted(slices.Values(b.attempts())), []string{"soak/n01.r1", "soak/n02.r1", "soak/n03.r1", "soak/n04.r1"})
		for id, r := range b.results() {
			if len(r.Attempts) != 1 || r.Attempts[0].Cut || len(r.Attempts[0].Problems) > 0 {
				t.Errorf("%s: %+v", id, r)
			}
		}
		want(t, "phase starts", len(b.events(evidence.EventPhaseStart)), 1)
		want(t, "gates", len(b.events(evidence.EventGate)), 1)
	})
}

func TestSecondStopCutsAndCutsAreNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(2)
		b := newBay(t, planOf(nodes, testOf("soak", "one", evidence.ScopeNode, nodes)))
		b.plan.Tests[0].Deadline = evidence.Duration(3 * time.Hour)
		for _, n := range nodes {
			b.rack.on(n, "work", lasting(2*time.Hour, "1"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		first := time.AfterFunc(time.Hour, func() { close(stop) })
		second := time.AfterFunc(time.Hour+time.Minute, cancel)
		defer first.Stop()
		defer second.Stop()
		b.set = func(o *Options) { o.Stop = stop }
		start := time.Now()
		if err := b.run(ctx); !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "cancelled") {
			t.Fatalf("want ErrStopped because of the cancellation: %v", err)
		}
		if took := time.Since(start); took > time.Hour+2*time.Minute {
			t.Errorf("the cancelled run went on until %s", took)
		}
		for id, r := range b.results() {
			if len(r.Attempts) != 1 || !r.Attempts[0].Cut || r.Attempts[0].Problems[0].Class != evidence.ClassCut {
				t.Errorf("%s: want one cut attempt: %+v", id, r)
			}
		}
		b.set = nil
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, r := range b.results() {
			if len(r.Attempts) != 2 || r.Attempts[1].Cut || len(r.Attempts[1].Problems) > 0 {
				t.Errorf("%s: want a whole second attempt: %+v", id, r)
			}
		}
	})
}

func TestTimeoutOfTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("soak", "one", evidence.ScopeNode, names(1))))
		b.plan.Tests[0].Deadline = evidence.Duration(3 * time.Hour)
		b.rack.on("n01", "work", lasting(2*time.Hour, "1"))
		b.set = func(o *Options) { o.Timeout = time.Hour }
		err := b.run(t.Context())
		if !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "the timeout of 1h0m0s passed") {
			t.Fatalf("want ErrStopped by the timeout: %v", err)
		}
		stops := b.events(evidence.EventStop)
		if len(stops) != 1 || stops[0].Reason != "the timeout of 1h0m0s passed" {
			t.Errorf("stop record: %+v", stops)
		}
		if a := b.results()["soak/n01.r1"].Attempts; len(a) != 1 || !a[0].Cut {
			t.Errorf("want a cut attempt: %+v", a)
		}
	})
}

func TestRetries(t *testing.T) {
	for _, test := range []struct {
		name     string
		prints   []string
		attempts int
	}{
		{"passes at once", []string{"1"}, 1},
		{"passes on attempt 2", []string{"0", "1"}, 2},
		{"unparsable, then passes", []string{"?", "1"}, 2},
		{"never passes", []string{"0", "0", "0", "1"}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := testOf("one", "one", evidence.ScopeNode, names(1))
				one.Retries = 2
				b := newBay(t, planOf(names(1), one))
				n := 0
				b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
					n++
					return printing(test.prints[n-1])(ctx, task, out, errs)
				})
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				want(t, "attempts", len(b.results()["one/n01.r1"].Attempts), test.attempts)
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				want(t, "attempts after a resume", n, test.attempts)
			})
		})
	}
}

func TestWholeSetCellsAreNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(6)
		many := testOf("many", "one", evidence.ScopeNode, nodes)
		many.Repeat = 3
		after := testOf("after", "one", evidence.ScopeNode, nodes)
		b := newBay(t, planOf(nodes, many, testOf("whole", "one", evidence.ScopeFleet, nodes), after))
		b.plan.Parallel = 4
		for i, n := range nodes {
			b.rack.on(n, "work", lasting(time.Duration(i+1)*time.Second, "1"))
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		whole := evidence.CellID("whole", nodes, 1)
		seen := false
		for _, id := range b.attempts() {
			if id == whole {
				seen = true
			}
			if test, _, _ := strings.Cut(id, "/"); (test == "after") != seen && id != whole {
				t.Errorf("%s ran on the wrong side of the whole-set cell", id)
			}
		}
		want(t, "attempts", len(b.attempts()), 6*3+1+6)
	})
}

func TestSlowTerminalAndStoreClosedUnderneath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		b := newBay(t, planOf(nodes, testOf("one", "one", evidence.ScopeNode, nodes)))
		store := b.open()
		b.rack.on("n02", "work", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			return code(0)
		})
		b.rack.on("n01", "work", lasting(50*time.Second, "1"))
		o := b.options(store)
		o.Progress = func(Progress) { _ = wait(t.Context(), time.Second) }
		start := time.Now()
		err := Run(t.Context(), o)
		if err == nil || errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "resumable") {
			t.Fatalf("want an error of our own machine: %v", err)
		}
		if took := time.Since(start); took > 45*time.Second {
			t.Errorf("what ran was not cancelled: %s", took)
		}
	})
}

func TestJournalFullIsReportedAndNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		store := b.open()
		ctx, cancel := context.WithCancelCause(t.Context())
		events := make(chan Progress, 64)
		r, err := newRun(b.options(store), events, cancel)
		if err != nil {
			t.Fatal(err)
		}
		r.broken(&evidence.JournalFull{Err: io.ErrShortWrite})
		before := len(store.Records())
		err = r.finish(ctx, r.execute(ctx))
		var full *evidence.JournalFull
		if !errors.As(err, &full) || errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "resumable") {
			t.Errorf("want a *JournalFull inside: %v", err)
		}
		want(t, "records", len(store.Records()), before)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What the fleet shares is loaded by one cell at a time, whatever nodes the
// cells are on; what a node has for itself is not.
func TestSharedLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(4)
		loads := map[string][]string{"files": {"storage"}, "burn": {"cpu", "gpu"}, "failover": {"storage", "fabric"}, "ring": {"fabric"}, "draw": {"power"}}
		var tests []evidence.Test
		for _, name := range []string{"burn", "files", "failover", "ring", "draw"} {
			spec := testOf(name, "one", evidence.ScopeNode, nodes)
			spec.Loads = loads[name]
			tests = append(tests, spec)
		}
		whole := testOf("whole", "one", evidence.ScopeFleet, nodes)
		whole.Loads = []string{"storage"}
		b := newBay(t, planOf(nodes, append(tests, whole)...))
		for i, n := range nodes {
			b.rack.on(n, "work", lasting(time.Duration(i+1)*time.Second, "1"))
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		running := make(map[string]string) // by cell: its test
		together := make(map[string]int)   // by load: the most cells at once
		for _, r := range b.records {
			switch r.Event {
			case evidence.EventAttemptStart:
				running[r.Cell], _, _ = strings.Cut(r.Cell, "/")
			case evidence.EventAttemptEnd:
				delete(running, r.Cell)
			}
			now := make(map[string]int)
			for _, test := range running {
				for _, load := range append(loads[test], map[string][]string{"whole": {"storage"}}[test]...) {
					now[load]++
				}
			}
			for load, n := range now {
				together[load] = max(together[load], n)
			}
		}
		want(t, "cells at once", together, map[string]int{"cpu": 4, "gpu": 4, "storage": 1, "fabric": 1, "power": 1})
		want(t, "attempts", len(b.attempts()), len(b.plan.Cells))
	})
}

func TestAStopStopsWhatDependsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(2)
		var tests []evidence.Test
		for _, phase := range []string{"base", "left", "right", "both", "after", "beside"} {
			tests = append(tests, testOf(phase, phase, evidence.ScopeNode, nodes))
		}
		b := newBay(t, planOf(nodes, tests...))
		for i, depends := range [][]string{nil, {"base"}, {"base"}, {"right", "left"}, nil, {"right"}} {
			b.plan.Phases[i].DependsOn = depends
		}
		b.plan.Phases[1].Gate.OnFail = "stop"
		b.rack.on("n02", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			if strings.Contains(task.Mark, "/left/") {
				return printing("0")(ctx, task, out, errs)
			}
			return printing("1")(ctx, task, out, errs)
		})
		for range 2 { // and the same when it is resumed
			if err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			results := b.results()
			for _, c := range b.plan.Cells {
				r := results[c.ID]
				if c.Test == "both" || c.Test == "after" {
					if r.Skipped == nil || r.Skipped.Class != evidence.ClassNotRun || !strings.Contains(r.Skipped.Detail, "phase left") {
						t.Errorf("%s: want not run because of phase left: %+v", c.ID, r)
					}
				} else if len(r.Attempts) != 1 {
					t.Errorf("%s: want one attempt: %+v", c.ID, r)
				}
			}
		}
	})
}

func TestPendingInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		one := testOf("one", "one", evidence.ScopeNode, nodes)
		one.Retries = 1
		b := newBay(t, planOf(nodes, one))
		b.plan.Parallel = 1
		b.rack.on("n01", "work", printing("0"))
		b.rack.kill("n02", evidence.ClassAuth)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range b.progress {
			if p.Cell != "" || p.Kind == ProgressPhaseStart {
				got = append(got, fmt.Sprintf("%s %s %d", p.Kind, p.Cell, p.Pending))
			}
		}
		want(t, "progress", strings.Join(got, "\n"), strings.Join([]string{
			"phase_start  3",
			"cell_start one/n01.r1 3", "cell_end one/n01.r1 3", "cell_start one/n01.r1 3", "cell_end one/n01.r1 2",
			"skip one/n02.r1 1", "cell_start one/n03.r1 1", "cell_end one/n03.r1 0",
		}, "\n"))
	})
}
