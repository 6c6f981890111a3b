package runner

import (
	"bytes"
	"context"
	"encoding/json"
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

func TestFaultCommands(t *testing.T) {
	for _, test := range []struct {
		kind, args   string
		inject, undo string
		err          string
	}{
		{"process_kill", `{"pidfile":"/run/x.pid"}`, "pkill -KILL -F /run/x.pid", "", ""},
		{"process_kill", `{"process":"a.b+c","undo":["start","it"]}`, `pkill -KILL -x -- a\.b\+c`, "start it", ""},
		{"process_kill", `{"process":"-f","pidfile":null,"undo":null}`, "pkill -KILL -x -- -f", "", ""},
		{"process_kill", `{}`, "", "", "exactly one of pidfile and process"},
		{"process_kill", ``, "", "", "exactly one of pidfile and process"},
		{"process_kill", `{"process":"x","pidfile":"/run/x.pid"}`, "", "", "exactly one"},
		{"process_kill", `{"pidfile":"x.pid"}`, "", "", "absolute path"},
		{"process_kill", `{"process":"nvidia-fabricmanager"}`, "", "", `want "nvidia-fabricma"`},
		{"process_kill", `{"process":"x","undo":[""]}`, "", "", "undo has no command"},
		{"process_kill", `{"process":"x","signal":"TERM"}`, "", "", "signal"},
		{"service_stop", `{"service":"nvidia-dcgm.service"}`, "systemctl stop nvidia-dcgm.service", "systemctl start nvidia-dcgm.service", ""},
		{"service_stop", `{"service":"ntp","manager":"service"}`, "service ntp stop", "service ntp start", ""},
		{"service_stop", `{"service":"x","manager":"rc"}`, "", "", `manager "rc"`},
		{"service_stop", `{"service":"--all"}`, "", "", `"--all" is not the name`},
		{"service_stop", `{}`, "", "", "is not the name"},
		{"command", `{"inject":["ip","link","set","eth0","down"],"undo":["ip","link","set","eth0","up"]}`, "ip link set eth0 down", "ip link set eth0 up", ""},
		{"command", `{"inject":["reboot"],"undo":[]}`, "reboot", "", ""},
		{"command", `{"inject":["reboot"]}`, "", "", "undo is missing"},
		{"command", `{"inject":[],"undo":[]}`, "", "", "inject has no command"},
		{"command", `{"inject":["x"],"undo":[""]}`, "", "", "undo has no command"},
		{"command", `[]`, "", "", "fault command: arguments"},
	} {
		kind, err := findFault(test.kind)
		if err != nil {
			t.Fatal(err)
		}
		inject, undo, err := kind.Commands(evidence.Fault{Kind: test.kind, Args: json.RawMessage(test.args)})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), test.kind) {
				t.Errorf("%s %s: want an error with %q: %v", test.kind, test.args, test.err, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", test.kind, test.args, err)
		}
		want(t, test.kind+" inject", strings.Join(inject, " "), test.inject)
		want(t, test.kind+" undo", strings.Join(undo, " "), test.undo)
	}
	for _, k := range Faults() {
		if k.Doc == "" {
			t.Errorf("%s has no doc", k.Name)
		}
		for _, p := range k.Params {
			if p.Doc == "" || p.Type == "" {
				t.Errorf("%s: parameter %s lacks its doc or type", k.Name, p.Name)
			}
		}
	}
	if _, err := findFault("meteor"); err == nil || !strings.Contains(err.Error(), "process_kill, service_stop, command") {
		t.Errorf("want an error that lists the kinds: %v", err)
	}
}

func breaking(after, lasts time.Duration, args string, nodes ...string) evidence.Fault {
	return evidence.Fault{Kind: "command", Nodes: nodes, After: evidence.Duration(after), For: evidence.Duration(lasts), Args: json.RawMessage(args)}
}

// faultBay runs one whole-set test with faults; drive is after the faults'
// end unless given.
func faultBay(t *testing.T, drive func(context.Context, checks.Bench) error, faults ...evidence.Fault) *bay {
	one := testOf("one", "one", evidence.ScopeFleet, names(3))
	one.Hazard, one.Faults = "breaks_things", faults
	one.Deadline = evidence.Duration(10 * time.Minute)
	b := newBay(t, planOf(names(3), one, testOf("next", "two", evidence.ScopeNode, names(3))))
	b.set = func(o *Options) { o.Allow = []string{"breaks_things"} }
	b.check.drive = func(ctx context.Context, bench checks.Bench) error {
		if bench.Test().Name == "next" {
			return work(ctx, bench)
		}
		return drive(ctx, bench)
	}
	return b
}

func afterFaults(ctx context.Context, b checks.Bench) error {
	select {
	case <-b.Faults():
	case <-ctx.Done():
		return ctx.Err()
	}
	return work(ctx, b)
}

func (b *bay) whole() evidence.MeasuredAttempt {
	b.t.Helper()
	a := b.results()[evidence.CellID("one", names(3), 1)].Attempts
	if len(a) == 0 {
		b.t.Fatal("the whole-set cell has no attempt")
	}
	return a[len(a)-1]
}

// faultLines are the lines of faults.jsonl, with seconds since the attempt's
// start.
func (b *bay) faultLines(attempt int) []string {
	b.t.Helper()
	dir := fmt.Sprintf("%s/cells/%s/%d", b.dir, evidence.CellID("one", names(3), 1), attempt)
	text, err := os.ReadFile(dir + "/raw/faults.jsonl")
	if err != nil {
		b.t.Fatal(err)
	}
	var start time.Time
	for _, r := range b.events(evidence.EventAttemptStart) {
		if strings.HasPrefix(r.Cell, "one/") && r.Attempt == attempt {
			start = r.Time
		}
	}
	var lines []string
	for line := range bytes.Lines(text) {
		var e evidence.FaultEvent
		if err := evidence.DecodeStrict(line, &e); err != nil {
			b.t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%.0fs %d %s %s %s", e.Time.Sub(start).Seconds(), e.Fault, e.Node, e.Event, e.Error)))
	}
	return lines
}

// checkFaults asserts that every fault that was opened is closed at the end.
func (b *bay) checkFaults() {
	b.t.Helper()
	opens := b.events(evidence.EventFaultOpen)
	if left := readHistory(b.records).openFaults; len(left) > 0 {
		b.t.Errorf("%d faults are still open", len(left))
	}
	want(b.t, "fault records", len(b.events(evidence.EventFaultClose)), len(opens))
}

func TestFaultsInTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultBay(t, afterFaults,
			breaking(10*time.Second, 60*time.Second, `{"inject":["break","a"],"undo":["mend","a"]}`, "n01", "n02"),
			breaking(20*time.Second, 30*time.Second, `{"inject":["break","b"],"undo":["mend","b"]}`, "n03"),
			evidence.Fault{Kind: "process_kill", Nodes: []string{"n01"}, After: evidence.Duration(90 * time.Second), Args: json.RawMessage(`{"process":"train"}`)},
		)
		for _, n := range names(3) {
			b.rack.on(n, "break", exiting(0))
			b.rack.on(n, "mend", exiting(0))
			b.rack.on(n, "pkill", exiting(0))
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.checkFaults()
		lines := b.faultLines(1)
		slices.Sort(lines) // the two nodes of the first fault go at once
		want(t, "faults.jsonl", strings.Join(lines, "\n"), strings.Join([]string{
			"10s 0 n01 inject_start", "10s 0 n01 injected", "10s 0 n02 inject_start", "10s 0 n02 injected",
			"20s 1 n03 inject_start", "20s 1 n03 injected", "50s 1 n03 undo_start", "50s 1 n03 undone",
			"70s 0 n01 undo_start", "70s 0 n01 undone", "70s 0 n02 undo_start", "70s 0 n02 undone",
			"90s 2 n01 inject_start", "90s 2 n01 injected",
		}, "\n"))
		a := b.whole()
		want(t, "problems", len(a.Problems), 0)
		want(t, "measured", len(a.Measurements), 3)
		for _, r := range b.events(evidence.EventFaultOpen) {
			if r.Fault == nil || r.Cell == "" || r.Attempt != 1 || (r.FaultIndex == 1) != (r.Node == "n03") || (r.FaultIndex == 2) != (len(r.Undo) == 0) {
				t.Errorf("fault record: %+v", r)
			}
		}
	})
}

func TestFaultThatWasNotInjectedIsNeverAPass(t *testing.T) {
	mendable := `{"inject":["break"],"undo":["mend"]}`
	for _, test := range []struct {
		name  string
		fault evidence.Fault
		set   func(*bay)
		drive func(context.Context, checks.Bench) error
		says  []string
	}{
		{"nothing matched", evidence.Fault{Kind: "process_kill", Nodes: names(1), Args: json.RawMessage(`{"process":"train"}`)},
			func(b *bay) { b.rack.on("n01", "pkill", exiting(1)) }, afterFaults, []string{"was not injected on n01: exit status 1"}},
		{"node is gone", breaking(time.Second, 0, mendable, "n01", "n02"),
			func(b *bay) {
				b.rack.on("n02", "break", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
					return evidence.Exit{Class: evidence.ClassToolMissing, Detail: "break: not found"}
				})
			}, afterFaults, []string{"was not injected on n02: tool-missing: break: not found"}},
		{"check ends before", breaking(time.Minute, 0, mendable, "n01"), nil, work, []string{"was not injected: the check ended first"}},
		{"check ends within", breaking(0, time.Minute, mendable, "n01"), nil, work, []string{"was undone 59s before its time: the check"}},
		{"bad arguments", breaking(0, 0, `{"inject":["x"]}`, "n01"), nil, afterFaults, []string{"undo is missing"}},
		{"unknown kind", evidence.Fault{Kind: "meteor", Nodes: names(1)}, nil, afterFaults, []string{`"meteor" is not known`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := faultBay(t, test.drive, test.fault)
				if test.set != nil {
					test.set(b)
				}
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.checkFaults()
				a := b.whole()
				want(t, "measured", len(a.Measurements), 3)
				want(t, "problems", len(a.Problems), len(test.says))
				for i, p := range a.Problems {
					if p.Class.ProvedByMeasure() || p.Class.Outcome() == evidence.Pass || !strings.Contains(p.Detail, test.says[i]) {
						t.Errorf("problem that could pass: %+v", p)
					}
				}
				if gates := b.events(evidence.EventGate); gates[0].Gate.Met {
					t.Error("the gate was met")
				}
			})
		})
	}
}

func TestFaultsAreUndoneInReverseOnEveryExit(t *testing.T) {
	for _, test := range []struct {
		name  string
		drive func(context.Context, checks.Bench) error
		stop  func(cancel func(), stop func())
		cut   bool
		err   error
	}{
		{"panic", func(ctx context.Context, _ checks.Bench) error {
			if err := wait(ctx, 20*time.Second); err != nil {
				return err
			}
			panic("boom")
		}, nil, false, nil},
		{"deadline", afterFaults, nil, false, nil},
		{"abandoned", func(ctx context.Context, _ checks.Bench) error { return wait(context.WithoutCancel(ctx), time.Hour) }, nil, false, nil},
		{"cancel", afterFaults, func(cancel, _ func()) { time.AfterFunc(20*time.Second, cancel) }, true, ErrStopped},
		{"stop, then cancel", afterFaults, func(cancel, stop func()) {
			time.AfterFunc(20*time.Second, stop)
			time.AfterFunc(30*time.Second, cancel)
		}, true, ErrStopped},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := faultBay(t, test.drive,
					breaking(time.Second, time.Hour, `{"inject":["break","a"],"undo":["mend","a"]}`, "n01"),
					breaking(10*time.Second, 2*time.Hour, `{"inject":["break","b"],"undo":["mend","b"]}`, "n02"),
					breaking(2*time.Second, 3*time.Hour, `{"inject":["break","c"],"undo":["mend","c"]}`, "n03"))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop != nil {
					stop := make(chan struct{})
					b.set = func(o *Options) { o.Allow, o.Stop = []string{"breaks_things"}, stop }
					test.stop(cancel, func() { close(stop) })
				}
				if err := b.run(ctx); !errors.Is(err, test.err) {
					t.Fatalf("want %v: %v", test.err, err)
				}
				b.checkFaults()
				var mended []string
				for _, c := range b.rack.calls(running("mend")) {
					mended = append(mended, c.argv[1]+" "+c.node)
				}
				want(t, "undone", mended, []string{"b n02", "c n03", "a n01"})
				want(t, "cut", b.whole().Cut, test.cut)
				synctest.Wait()
				if test.name == "abandoned" {
					_ = wait(t.Context(), 2*time.Hour)
				}
			})
		})
	}
}

func TestFaultThatCannotBeUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultBay(t, afterFaults, breaking(time.Second, time.Second, `{"inject":["break"],"undo":["mend"]}`, "n01", "n02"))
		mends := false
		b.rack.on("n02", "mend", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			if mends {
				return code(0)
			}
			fmt.Fprintln(errs, "it is stuck")
			return code(1)
		})
		start := time.Now()
		err := b.run(t.Context())
		var open *OpenFaultError
		if !errors.As(err, &open) || len(open.Faults) != 1 {
			t.Fatalf("want an *OpenFaultError: %v", err)
		}
		for _, word := range []string{"command on n02", "exit status 1", "it is stuck"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("took %s", took)
		}
		if p := b.whole().Problems; len(p) != 1 || !strings.Contains(p[0].Detail, "still in effect on n02") {
			t.Errorf("problems: %+v", p)
		}
		if !slices.ContainsFunc(b.progress, func(p Progress) bool {
			return p.FaultEvent == "error" && p.Problem != nil && p.Problem.Node == "n02" && strings.Contains(p.Problem.Detail, "it is stuck")
		}) {
			t.Error("no progress says why the fault was not undone")
		}
		results := b.results()
		if s := results["next/n02.r1"].Skipped; s == nil || !strings.Contains(s.Detail, "still in effect") {
			t.Errorf("n02 was used with the fault in effect: %+v", results["next/n02.r1"])
		}
		for _, id := range []string{"next/n01.r1", "next/n03.r1"} {
			want(t, id, len(results[id].Attempts), 1)
		}
		// Undo of its own does it, and the resumed run does the rest.
		mends = true
		store := b.open()
		undone, err := Undo(t.Context(), b.options(store))
		if undone != 1 || err != nil {
			t.Errorf("undone %d, %v", undone, err)
		}
		if undone, err := Undo(t.Context(), b.options(store)); undone != 0 || err != nil {
			t.Errorf("undone again: %d, %v", undone, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.checkFaults()
		want(t, "attempts of next on n02", len(b.results()["next/n02.r1"].Attempts), 1)
	})
}

func TestUndoDoesNotOfferARefusedKeyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultBay(t, afterFaults, breaking(time.Second, time.Second, `{"inject":["break"],"undo":["mend"]}`, "n02"))
		b.rack.on("n02", "mend", func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
			return evidence.Exit{Class: evidence.ClassAuth, Detail: "no key is accepted"}
		})
		var open *OpenFaultError
		if err := b.run(t.Context()); !errors.As(err, &open) || !strings.Contains(err.Error(), "no key is accepted") {
			t.Fatalf("want an *OpenFaultError: %v", err)
		}
		// Once in the attempt, before n02's next cell, and at the end.
		want(t, "undo commands", len(b.rack.calls(running("mend"))), 3)
	})
}

// A killed process leaves a directory such as the copy made here: the journal
// says that the fault is open.
func TestResumeUndoesOpenFaultsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultBay(t, afterFaults,
			breaking(time.Second, time.Minute, `{"inject":["break","a"],"undo":["mend","a"]}`, "n01"),
			breaking(2*time.Second, time.Minute, `{"inject":["break","b"],"undo":["mend","b"]}`, "n02"))
		killed := b.dir + "-killed"
		copied := make(chan error, 1)
		kill := time.AfterFunc(30*time.Second, func() { copied <- os.CopyFS(killed, os.DirFS(b.dir)) })
		defer kill.Stop()
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-copied; err != nil {
			t.Fatal(err)
		}
		b.dir = killed
		b.rack = newRack(names(3)...)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var mended []string
		known, leased := make(map[string]bool), make(map[string]bool)
		for _, c := range b.rack.log {
			switch c.argv[0] {
			case "head":
				known[c.node] = true
			case "stdbuf":
				leased[c.node] = true
			case "mend":
				mended = append(mended, c.argv[1]+" "+c.node)
				if !known[c.node] || !leased[c.node] {
					t.Errorf("mended before it was identified and leased: %s", c.node)
				}
			case "work", "break":
				if len(mended) < 2 {
					t.Errorf("%s came before the undo", c.argv[0])
				}
			}
		}
		want(t, "undone first", mended[:2], []string{"b n02", "a n01"})
		want(t, "n03 before the undo", b.rack.calls(func(c call) bool { return c.node == "n03" })[0].at.After(b.rack.calls(running("mend"))[1].at), true)
		b.checkFaults()
		a := b.results()[evidence.CellID("one", names(3), 1)].Attempts
		if len(a) != 2 || !a[0].Cut || a[1].Cut || len(a[1].Problems) > 0 {
			t.Errorf("attempts: %+v", a)
		}
	})
}

// An undo changes a node, so it must reach the machine that was broken, and
// not while another runner works there.
func TestUndoReachesOnlyTheMachineThatWasBroken(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    func(*rack)
		mended int
		says   string
	}{
		{"the same", func(*rack) {}, 1, ""},
		{"its clock is off", func(r *rack) { r.machine("n01").clock = time.Hour }, 1, ""},
		{"replaced", func(r *rack) { r.machine("n01").machineID = "other" }, 0, `"other" now`},
		{"leased by another", func(r *rack) { r.locks["n01:/var/tmp/rackproof-1000/n01.lock"] = true }, 0, "another runner holds"},
		{"unreachable", func(r *rack) { r.kill("n01", evidence.ClassTCP) }, 0, "no route to host"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := faultBay(t, afterFaults, breaking(time.Second, time.Minute, `{"inject":["break"],"undo":["mend"]}`, "n01"))
				killed := b.dir + "-killed"
				copied := make(chan error, 1)
				time.AfterFunc(30*time.Second, func() { copied <- os.CopyFS(killed, os.DirFS(b.dir)) })
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-copied; err != nil {
					t.Fatal(err)
				}
				again := killed + "-again"
				if err := os.CopyFS(again, os.DirFS(killed)); err != nil {
					t.Fatal(err)
				}
				begin := func(dir string) *bay {
					b := faultBay(t, afterFaults, breaking(time.Second, time.Minute, `{"inject":["break"],"undo":["mend"]}`, "n01"))
					b.dir = dir
					test.set(b.rack)
					return b
				}
				b = begin(killed)
				store := b.open()
				undone, err := Undo(t.Context(), b.options(store))
				want(t, "undone", undone, test.mended)
				if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
					t.Errorf("Undo: want an error with %q: %v", test.says, err)
				}
				want(t, "sent by Undo", len(b.rack.calls(running("mend"))), test.mended)
				if err := store.Close(); err != nil {
					t.Error(err)
				}
				b = begin(again)
				err = b.run(t.Context())
				if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
					t.Errorf("Run: want an error with %q: %v", test.says, err)
				}
				if test.mended == 0 {
					want(t, "sent by Run", len(b.rack.calls(running("mend"))), 0)
				}
			})
		})
	}
}
