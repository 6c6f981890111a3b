package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

func TestHowDriveEnds(t *testing.T) {
	forever := make(chan struct{})
	lost := &evidence.Problem{Node: "n01", Step: "x", Class: evidence.ClassToolMissing, Detail: "no fio"}
	for _, test := range []struct {
		name  string
		drive func(context.Context, checks.Bench) error
		class []evidence.Class
		says  string
		took  time.Duration
	}{
		{"well", work, nil, "", time.Second},
		{"deadline in a command", func(ctx context.Context, b checks.Bench) error {
			_, err := b.Exec(ctx, "long", checks.Command{Node: "n01", Argv: []string{"long"}})
			return err
		}, []evidence.Class{evidence.ClassTimeout, evidence.ClassTimeout}, "deadline of 1m0s passed", time.Minute},
		{"deadline while waiting", func(ctx context.Context, b checks.Bench) error {
			return b.Wait(ctx, "a train", time.Second, func(context.Context) (bool, error) { return false, nil })
		}, []evidence.Class{evidence.ClassTimeout}, "deadline of 1m0s passed", time.Minute},
		{"late and content", func(ctx context.Context, b checks.Bench) error {
			<-ctx.Done()
			return nil
		}, []evidence.Class{evidence.ClassTimeout}, "deadline of 1m0s passed", time.Minute},
		{"within the grace", func(ctx context.Context, b checks.Bench) error {
			<-ctx.Done()
			return errors.Join(wait(context.WithoutCancel(ctx), driveGrace-time.Second), lost)
		}, []evidence.Class{evidence.ClassTimeout, evidence.ClassToolMissing}, "", time.Minute + driveGrace - time.Second},
		{"abandoned", func(context.Context, checks.Bench) error {
			<-forever
			return nil
		}, []evidence.Class{evidence.ClassTimeout}, "abandoned", time.Minute + driveGrace},
		{"panic", func(context.Context, checks.Bench) error {
			return errors.New(names(1)[len(lost.Node)])
		}, []evidence.Class{evidence.ClassPanic}, "index out of range", 0},
		{"its own timeout", func(ctx context.Context, b checks.Bench) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return fmt.Errorf("settle: %w", ctx.Err())
		}, []evidence.Class{evidence.ClassTimeout}, "settle: context deadline exceeded", time.Second},
		{"wrapped and joined", func(context.Context, checks.Bench) error {
			return errors.Join(fmt.Errorf("prepare: %w", lost), errors.New("odd"))
		}, []evidence.Class{evidence.ClassToolMissing, evidence.ClassUnparsable}, "no fio", 0},
		{"a node outside the fleet", func(ctx context.Context, b checks.Bench) error {
			_, err := b.Exec(ctx, "x", checks.Command{Node: "elsewhere", Argv: []string{"true"}})
			return err
		}, []evidence.Class{evidence.ClassUnparsable}, `"elsewhere" is not in the fleet`, 0},
		{"a step twice", func(ctx context.Context, b checks.Bench) error {
			return errors.Join(work(ctx, b), work(ctx, b))
		}, []evidence.Class{evidence.ClassUnparsable}, "used before", time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forever = make(chan struct{})
				b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1)), testOf("next", "two", evidence.ScopeNode, names(1))))
				b.check.drive = func(ctx context.Context, bench checks.Bench) error {
					if bench.Test().Name == "next" {
						return work(ctx, bench)
					}
					return test.drive(ctx, bench)
				}
				b.rack.on("n01", "long", lasting(time.Hour, ""))
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				results := b.results()
				a := results["one/n01.r1"].Attempts[0]
				var classes []evidence.Class
				var details []string
				for _, p := range a.Problems {
					classes, details = append(classes, p.Class), append(details, p.Detail)
				}
				want(t, "classes", classes, test.class)
				if !strings.Contains(strings.Join(details, "\n"), test.says) {
					t.Errorf("%q does not say %q", details, test.says)
				}
				if took := a.End.Sub(a.Start); took.Round(time.Second) != test.took || a.Cut {
					t.Errorf("took %s, cut %t; want %s, not cut", took, a.Cut, test.took)
				}
				if next := results["next/n01.r1"].Attempts; len(next) != 1 || len(next[0].Problems) > 0 {
					t.Errorf("the run did not go on: %+v", next)
				}
				close(forever)
			})
		})
	}
}

// An executor that does not end a command must not change files that have
// been hashed.
func TestLateOutputOfAStuckCommandGoesNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1)), testOf("next", "two", evidence.ScopeNode, names(1))))
		release, written := make(chan struct{}), make(chan error, 1)
		b.rack.on("n01", "stuck", func(_ context.Context, _ evidence.Task, out, _ io.Writer) evidence.Exit {
			fmt.Fprintln(out, "early")
			<-release
			_, err := fmt.Fprintln(out, "late")
			written <- err
			return code(0)
		})
		b.check.drive = func(ctx context.Context, bench checks.Bench) error {
			if bench.Test().Name == "next" {
				return work(ctx, bench)
			}
			_, err := bench.Exec(ctx, "stuck", checks.Command{Node: "n01", Argv: []string{"stuck"}})
			if !errors.Is(err, errAttemptOver) {
				t.Errorf("the check heard %v", err)
			}
			if _, err := bench.Exec(ctx, "more", checks.Command{Node: "n01", Argv: []string{"true"}}); !errors.Is(err, errAttemptOver) {
				t.Errorf("the bench still runs commands: %v", err)
			}
			return err
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(release)
		if err := <-written; !errors.Is(err, errAttemptOver) {
			t.Errorf("late output was taken: %v", err)
		}
		synctest.Wait()
		a := b.results()["one/n01.r1"].Attempts[0]
		text, err := os.ReadFile(b.dir + "/cells/one/n01.r1/1/raw/stuck.n01/stdout")
		if err != nil || string(text) != "early\n" {
			t.Errorf("%q, %v", text, err)
		}
		want(t, "step", a.Steps, []evidence.Step{{Dir: "stuck.n01", Step: "stuck", Node: "n01", Class: evidence.ClassTimeout}})
		want(t, "problems", len(a.Problems), 2)
	})
}

func TestCommandsHaveMarkEnvironmentAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testOf("one", "one", evidence.ScopeNode, names(1))
		one.Silence = evidence.Duration(7 * time.Second)
		b := newBay(t, planOf(names(1), one))
		var tasks []evidence.Task
		b.rack.on("n01", "look", func(_ context.Context, task evidence.Task, _, _ io.Writer) evidence.Exit {
			tasks = append(tasks, task)
			return code(3)
		})
		b.check.drive = func(ctx context.Context, bench checks.Bench) error {
			if err := bench.Wait(ctx, "a while", 10*time.Second, func() func(context.Context) (bool, error) {
				n := 0
				return func(context.Context) (bool, error) { n++; return n == 3, nil }
			}()); err != nil {
				return err
			}
			exit, err := bench.Exec(ctx, "a", checks.Command{Node: "n01", Argv: []string{"look"}, Env: map[string]string{"LC_ALL": "de_DE", "OWN": "x"}})
			if err != nil || exit.Code == nil || *exit.Code != 3 {
				t.Errorf("a nonzero exit is no error: %+v, %v", exit, err)
			}
			if _, err := bench.Exec(ctx, "b", checks.Command{Node: "n01", Argv: []string{"look"}, Deadline: time.Second, Silence: time.Minute}); err != nil {
				t.Error(err)
			}
			return work(ctx, bench)
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "mark", tasks[0].Mark, "run/one/n01.r1/1/a")
		want(t, "environment", tasks[0].Env, map[string]string{
			"LC_ALL": "C", "LANG": "C", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC", "COLUMNS": "200", "OWN": "x",
		})
		want(t, "deadlines", []time.Duration{tasks[0].Deadline, tasks[1].Deadline}, []time.Duration{40 * time.Second, time.Second})
		want(t, "silences", []time.Duration{tasks[0].Silence, tasks[1].Silence}, []time.Duration{7 * time.Second, time.Minute})
	})
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(2), testOf("one", "one", evidence.ScopeFleet, names(2))))
		b.plan.Tests[0].Deadline = evidence.Duration(5 * time.Minute)
		n := 0
		b.rack.on("n01", "ping", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			switch n++; n {
			case 2: // overruns two grid points
				return lasting(25*time.Second, "slow")(ctx, task, out, errs)
			case 3:
				return evidence.Exit{Class: evidence.ClassLost, Detail: "reset"}
			case 4:
				fmt.Fprint(out, strings.Repeat("x", 5000)+"\xff")
				fmt.Fprint(errs, "bad \xff")
				return code(7)
			}
			return exiting(0)(ctx, task, out, errs)
		})
		b.rack.on("n02", "ping", lasting(3*time.Second, "pong"))
		b.check.drive = func(ctx context.Context, bench checks.Bench) error {
			var both sync.WaitGroup
			both.Go(func() {
				err := bench.Probe(ctx, "ping", "n01", 10*time.Second, func(n int) (checks.Command, bool) {
					return checks.Command{Argv: []string{"ping"}}, n < 5
				})
				if err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 11*time.Second)
				defer cancel()
				err := bench.Probe(ctx, "ping", "n02", 5*time.Second, func(int) (checks.Command, bool) { return checks.Command{Argv: []string{"ping"}}, true })
				if err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			return work(ctx, bench)
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := func(node string) (all []string) {
			text, err := os.ReadFile(b.dir + "/cells/" + evidence.CellID("one", names(2), 1) + "/1/raw/ping." + node + "/stdout")
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(text) {
				var p checks.ProbeLine
				if err := evidence.DecodeStrict(line, &p); err != nil {
					t.Fatal(err)
				}
				c := "none"
				if p.Code != nil {
					c = fmt.Sprint(*p.Code)
				}
				all = append(all, fmt.Sprintf("%d %.0f-%.0f %s %s %d %q", p.N, p.Start, p.End, p.Class, c, len(p.Stdout), p.Stderr))
			}
			return all
		}
		want(t, "probes of n01", lines("n01"), []string{
			`0 0-0 ok 0 0 ""`, `1 10-35 ok 0 5 ""`, `2 40-40 lost none 0 "reset"`, `3 50-50 ok 7 4096 "bad �"`, `4 60-60 ok 0 0 ""`,
		})
		// The one that began at 10 s was ended by the check and says nothing.
		want(t, "probes of n02", lines("n02"), []string{`0 0-3 ok 0 5 ""`, `1 5-8 ok 0 5 ""`})
		a := b.results()[evidence.CellID("one", names(2), 1)].Attempts[0]
		for _, s := range a.Steps {
			want(t, s.Dir, s.Class, evidence.ClassOK)
		}
		want(t, "problems", len(a.Problems), 0)
	})
}

func TestRawDiskFailureEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(2), testOf("one", "one", evidence.ScopeNode, names(2))))
		b.rack.on("n01", "work", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			// What End finds there is not what was written: the disk lies.
			if err := os.WriteFile(b.dir+"/cells/one/n01.r1/1/raw/work.n01/stdout", []byte("forged"), 0o644); err != nil {
				t.Error(err)
			}
			return code(0)
		})
		b.rack.on("n02", "work", lasting(50*time.Second, "1"))
		store := b.open()
		err := Run(t.Context(), b.options(store))
		if err == nil || errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "one/n01.r1") || !strings.Contains(err.Error(), "resumable") {
			t.Errorf("want the disk's error: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSafeCallOfEndedGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := safeCall(t.Context(), time.Second, func(context.Context) error { panic(errors.New("boom")) })
		if !strings.HasPrefix(result.panicked, "boom\n") || !strings.Contains(result.panicked, "attempt_test.go") {
			t.Errorf("no value and stack: %q", result.panicked)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if result := safeCall(ctx, time.Second, func(context.Context) error { return wait(t.Context(), 3*time.Second) }); !result.abandoned || time.Since(start) != time.Second {
			t.Errorf("want abandoned after a second: %+v after %s", result, time.Since(start))
		}
	})
}

func TestBenchParams(t *testing.T) {
	b := &bench{cell: &cellState{test: &evidence.Test{Name: "one", Params: json.RawMessage(`{"size": 3}`)}}}
	var params struct{ Size int }
	if err := b.Params(&params); err != nil || params.Size != 3 {
		t.Errorf("%+v, %v", params, err)
	}
	var wrong struct{ Size string }
	if err := b.Params(&wrong); err == nil || !strings.Contains(err.Error(), "test one: parameters") {
		t.Errorf("want an error: %v", err)
	}
}

func TestCleanupWhateverEndsTheAttempt(t *testing.T) {
	for _, test := range []struct {
		name    string
		drive   func(context.Context, checks.Bench) error
		remove  func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit
		cancel  bool
		classes []evidence.Class
		says    string
	}{
		{"well", work, exiting(0), false, nil, ""},
		{"deadline", hang, exiting(0), false, []evidence.Class{evidence.ClassTimeout, evidence.ClassTimeout}, ""},
		{"cancel", hang, exiting(0), true, []evidence.Class{evidence.ClassCut, evidence.ClassCut}, ""},
		{"panic", func(context.Context, checks.Bench) error { panic("boom") }, exiting(0), false, []evidence.Class{evidence.ClassPanic}, ""},
		{"abandoned", func(ctx context.Context, _ checks.Bench) error {
			return wait(context.WithoutCancel(ctx), 2*time.Minute)
		},
			exiting(0), false, []evidence.Class{evidence.ClassTimeout}, ""},
		{"left behind", work, exiting(1), false, []evidence.Class{evidence.ClassExit}, `not cleaned up: ["rm" "x"]: exit status 1`},
		{"takes too long", work, lasting(time.Hour, ""), false, []evidence.Class{evidence.ClassExit}, "timeout"},
		{"does not end", work, func(ctx context.Context, _ evidence.Task, _, _ io.Writer) evidence.Exit {
			_ = wait(context.WithoutCancel(ctx), 2*time.Minute)
			return code(0)
		}, false, []evidence.Class{evidence.ClassExit}, "did not end the command"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
				b.rack.on("n01", "long", lasting(time.Hour, ""))
				b.rack.on("n01", "rm", test.remove)
				b.check.drive = func(ctx context.Context, bench checks.Bench) error {
					if err := errors.Join(
						bench.Cleanup("clean-directory", checks.Command{Node: "n01", Argv: []string{"rmdir", "x"}}),
						bench.Cleanup("clean-files", checks.Command{Node: "n01", Argv: []string{"rm", "x"}}),
					); err != nil {
						return err
					}
					if err := bench.Cleanup("x", checks.Command{Node: "elsewhere", Argv: []string{"rm"}}); err == nil {
						t.Error("a cleanup outside of the fleet was taken")
					}
					return test.drive(ctx, bench)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel {
					time.AfterFunc(10*time.Second, cancel)
				}
				if err := b.run(ctx); test.cancel != errors.Is(err, ErrStopped) || err != nil && !test.cancel {
					t.Fatal(err)
				}
				a := b.results()["one/n01.r1"].Attempts[0]
				var sent []string
				for _, c := range b.rack.calls(func(c call) bool { return c.argv[0] == "rm" || c.argv[0] == "rmdir" }) {
					sent = append(sent, strings.Join(c.argv, " ")+" "+c.mark)
				}
				want(t, "sent", sent, []string{"rm x run/one/n01.r1/1/clean-files", "rmdir x run/one/n01.r1/1/clean-directory"})
				steps := 0
				for _, s := range a.Steps {
					if strings.HasPrefix(s.Dir, "clean-") {
						steps++
					}
				}
				want(t, "steps", steps, 2)
				var classes []evidence.Class
				said := ""
				for _, p := range a.Problems {
					classes, said = append(classes, p.Class), said+p.Detail
				}
				want(t, "classes", classes, test.classes)
				if !strings.Contains(said, test.says) {
					t.Errorf("%q does not say %q", said, test.says)
				}
				_ = wait(t.Context(), time.Hour)
			})
		})
	}
}

func hang(ctx context.Context, b checks.Bench) error {
	_, err := b.Exec(ctx, "long", checks.Command{Node: "n01", Argv: []string{"long"}})
	return err
}

// A check that is inside when its attempt ends may begin a step after that.
func TestStepBegunWhileTheBenchCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		store := b.open()
		dir, err := store.Begin(b.plan.Cells[0], names(1))
		if err != nil {
			t.Fatal(err)
		}
		bench := &bench{dir: dir, until: time.Now().Add(time.Minute), empty: make(chan struct{})}
		_, leave, err := bench.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() {
			if _, err := bench.step("late", "n01", []string{"late"}); err != nil {
				t.Error(err)
			}
		})
		stuck := bench.close(2 * time.Second)
		if len(stuck) != 1 || stuck[0].name != "late" {
			t.Errorf("the late step was left open: %+v", stuck)
		}
		leave()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClippedBuffer(t *testing.T) {
	b := clippedBuffer{limit: 3}
	for range 2 {
		if n, err := b.Write([]byte("ab")); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	want(t, "kept", b.String(), "aba")
}
