package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

func TestRefusedBeforeAnythingRuns(t *testing.T) {
	faulty := testOf("recovery", "one", evidence.ScopeNode, names(2))
	faulty.Faults = []evidence.Fault{{Kind: "command", Nodes: names(1), Args: json.RawMessage(`{"inject":["break"],"undo":["mend"]}`)}}
	hazardous := faulty
	hazardous.Hazard = "kills_processes"
	plain := testOf("plain", "one", evidence.ScopeNode, names(2))
	for _, test := range []struct {
		name string
		test evidence.Test
		set  func(*bay)
		says []string
		sent bool // identification is needed to notice
	}{
		{"hazard", hazardous, nil, []string{"recovery", "kills_processes", "command", "--allow kills_processes"}, false},
		{"fault without hazard", faulty, nil, []string{"recovery", "--allow command"}, false},
		{"another hazard allowed", hazardous, func(b *bay) { b.set = func(o *Options) { o.Allow = []string{"command", "reboots"} } }, []string{"--allow kills_processes"}, false},
		{"disk", plain, func(b *bay) { b.set = func(o *Options) { o.MinFree = 1 << 62 } }, []string{"MiB are free", b62}, false},
		{"one machine twice", plain, func(b *bay) { b.rack.machine("n02").machineID = "machine-n01" }, []string{"n01", "n02", "machine-n01", "shared_machine = true"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBay(t, planOf(names(2), test.test))
				if test.set != nil {
					test.set(b)
				}
				err := b.run(t.Context())
				if err == nil || errors.Is(err, ErrStopped) {
					t.Fatalf("want a refusal: %v", err)
				}
				for _, word := range test.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%q does not say %q", err, word)
					}
				}
				if !test.sent && len(b.rack.log) > 0 {
					t.Errorf("%d commands were sent", len(b.rack.log))
				}
				want(t, "attempts", len(b.attempts()), 0)
			})
		})
	}
}

const b62 = "4398046511104 MiB are needed"

func TestHazardErrorIsFound(t *testing.T) {
	err := errors.Join(&HazardError{Test: "t", Hazard: "h"})
	var hazard *HazardError
	if !errors.Is(err, ErrHazard) || !errors.As(err, &hazard) || hazard.Test != "t" {
		t.Errorf("not found in %v", err)
	}
}

func TestSharedMachineIsAllowedByThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(2), testOf("one", "one", evidence.ScopeNode, names(2))))
		b.plan.SharedMachine = true
		b.rack.machine("n02").machineID = "machine-n01"
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "attempts", len(b.attempts()), 2)
	})
}

func TestNodesThatCannotBeUsed(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    func(*bay)
		class  evidence.Class
		detail string
		tries  int // of connecting before the first cell
	}{
		{"refused for good", func(b *bay) { b.rack.kill("n02", evidence.ClassAuth) }, evidence.ClassAuth, "no route", 1},
		{"wrong host key", func(b *bay) { b.rack.kill("n02", evidence.ClassHostKeyMismatch) }, evidence.ClassHostKeyMismatch, "", 1},
		{"unreachable", func(b *bay) { b.rack.kill("n02", evidence.ClassTCP) }, evidence.ClassTCP, "", connectTries},
		{"clock before ours", func(b *bay) { b.rack.machine("n02").clock = 90 * time.Second }, evidence.ClassClockOffset, "+90.00", 1},
		{"clock behind ours", func(b *bay) { b.rack.machine("n02").clock = -1100 * time.Millisecond }, evidence.ClassClockOffset, "-1.09", 1},
		{"clock unreadable", func(b *bay) { b.rack.on("n02", "date", printing("never")) }, evidence.ClassClockOffset, `"never"`, 1},
		{"no clock", func(b *bay) { b.rack.on("n02", "date", exiting(2)) }, evidence.ClassClockOffset, "exit status 2", 1},
		{"hangs", func(b *bay) { b.rack.on("n02", "head", lasting(time.Hour, "x")) }, evidence.ClassTimeout, "machine-id", 1},
		{"leased by another", func(b *bay) { b.rack.locks["n02:/var/tmp/rackproof-1000/n02.lock"] = true }, evidence.ClassLeaseHeld, "another runner", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := names(3)
				b := newBay(t, planOf(nodes, testOf("one", "one", evidence.ScopeNode, nodes), testOf("whole", "one", evidence.ScopeFleet, nodes)))
				test.set(b)
				start := time.Now()
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > 3*time.Minute {
					t.Errorf("the run hung for %s", took)
				}
				results := b.results()
				for _, id := range []string{"one/n02.r1", evidence.CellID("whole", nodes, 1)} {
					skipped := results[id].Skipped
					if skipped == nil || skipped.Node != "n02" || skipped.Class != test.class || !strings.Contains(skipped.Detail, test.detail) {
						t.Errorf("%s: want skipped as %s because of n02: %+v", id, test.class, results[id])
					}
				}
				for _, id := range []string{"one/n01.r1", "one/n03.r1"} {
					if a := results[id].Attempts; len(a) != 1 || len(a[0].Problems) > 0 {
						t.Errorf("%s: %+v", id, results[id])
					}
				}
				first := b.events(evidence.EventAttemptStart)[0].Time
				tries := b.rack.calls(func(c call) bool {
					return c.node == "n02" && c.argv[0] == "(identify)" && !c.at.After(first)
				})
				want(t, "connection tries", len(tries) >= test.tries && len(tries) <= test.tries+2, true)
			})
		})
	}
}

func TestIdentityIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(3), testOf("one", "one", evidence.ScopeNode, names(3))))
		b.rack.machine("n01").clock = 250 * time.Millisecond
		b.rack.machine("n02").serial = ""
		b.rack.machine("n02").flaky = 2
		b.rack.machine("n03").machineID = ""
		b.rack.on("n03", "date", printing("946684801.%N"))
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(b.dir + "/run/inventory.json")
		if err != nil {
			t.Fatal(err)
		}
		var inventory evidence.Inventory
		if err := evidence.DecodeStrict(data, &inventory); err != nil {
			t.Fatal(err)
		}
		want(t, "nodes", len(inventory.Nodes), 3)
		n01 := inventory.Nodes[0]
		if n01.ClockOffset == nil || *n01.ClockOffset < 0.249 || *n01.ClockOffset > 0.251 {
			t.Errorf("clock offset of n01: %+v", n01.ClockOffset)
		}
		n01.ClockOffset = nil
		want(t, "n01", n01, evidence.NodeIdentity{Node: "n01", Address: "n01:22", MachineID: "machine-n01", BootID: "boot-n01", Serial: "serial-n01", HostKey: "SHA256:n01"})
		want(t, "n02", inventory.Nodes[1].Serial+inventory.Nodes[1].MachineID, "machine-n02")
		var notes []string
		for _, r := range b.events(evidence.EventNote) {
			notes = append(notes, r.Reason)
		}
		want(t, "notes", notes, []string{"node n03 has no machine id: a second name of the same machine would not be noticed"})
		want(t, "n03 is used", len(b.results()["one/n03.r1"].Attempts), 1)
	})
}

func TestResumeRefusesAnotherMachine(t *testing.T) {
	for _, test := range []struct {
		name string
		swap func(*machine)
		says []string
	}{
		{"machine id", func(m *machine) { m.machineID = "other" }, []string{"n02", "machine id", `"machine-n02"`, `"other"`}},
		{"no machine id", func(m *machine) { m.machineID = "" }, []string{"n02", "machine id", `""`}},
		{"serial", func(m *machine) { m.serial = "other" }, []string{"n02", "serial number", `"serial-n02"`, `"other"`}},
		{"host key", func(m *machine) { m.hostKey = "SHA256:other" }, []string{"n02", "host key", `"SHA256:other"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBay(t, planOf(names(2), testOf("one", "one", evidence.ScopeNode, names(2))))
				b.plan.Parallel = 1
				stop := make(chan struct{})
				b.set = func(o *Options) { o.Stop = stop }
				b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
					close(stop)
					return printing("1")(ctx, task, out, errs)
				})
				if err := b.run(t.Context()); !errors.Is(err, ErrStopped) {
					t.Fatal(err)
				}
				b.set = nil
				test.swap(b.rack.machine("n02"))
				before := len(b.records)
				err := b.run(t.Context())
				var identity *IdentityError
				if !errors.As(err, &identity) {
					t.Fatalf("want an *IdentityError: %v", err)
				}
				for _, word := range test.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%q does not say %s", err, word)
					}
				}
				for _, r := range b.records[before:] {
					if r.Event != evidence.EventResume {
						t.Errorf("recorded although refused: %+v", r)
					}
				}
				want(t, "work done", len(b.rack.calls(running("work"))), 1)
			})
		})
	}
}

func TestResumeNotesAnotherBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		b.rack.on("n01", "work", lasting(50*time.Second, "1"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := b.run(ctx); !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
		b.rack.machine("n01").bootID = "second"
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		notes := b.events(evidence.EventNote)
		if len(notes) != 1 || notes[0].Node != "n01" || !strings.Contains(notes[0].Reason, "boot-n01 and is second") {
			t.Errorf("notes: %+v", notes)
		}
	})
}

func TestLeaseOfAKilledPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		lock := "n01:/var/tmp/rackproof-1000/n01.lock"
		b.rack.locks[lock] = true
		goes := time.AfterFunc(5*time.Second, func() {
			b.rack.mu.Lock()
			defer b.rack.mu.Unlock()
			delete(b.rack.locks, lock)
		})
		defer goes.Stop()
		b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			b.rack.mu.Lock()
			held := b.rack.locks[lock]
			b.rack.mu.Unlock()
			if !held {
				t.Error("the cell runs without the lease")
			}
			return printing("1")(ctx, task, out, errs)
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "attempts", len(b.results()["one/n01.r1"].Attempts), 1)
		want(t, "locks left", len(b.rack.locks), 0)
	})
}

func TestNoFlockIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		b.rack.machine("n01").noFlock = true
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		notes := b.events(evidence.EventNote)
		if len(notes) != 1 || !strings.Contains(notes[0].Reason, "node n01: no lease") || !strings.Contains(notes[0].Reason, "stdbuf: not found") {
			t.Errorf("notes: %+v", notes)
		}
		want(t, "attempts", len(b.attempts()), 1)
	})
}

func TestLostLeaseIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testOf("one", "one", evidence.ScopeNode, names(1))
		one.Repeat = 2
		b := newBay(t, planOf(names(1), one))
		n := 0
		b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			if n++; n == 1 {
				b.rack.kill("n01", evidence.ClassTCP)
				b.rack.revive("n01", "boot-n01")
			}
			return printing("1")(ctx, task, out, errs)
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "leases taken", len(b.rack.calls(running("stdbuf"))), 2)
		notes := b.events(evidence.EventNote)
		if len(notes) != 1 || !strings.Contains(notes[0].Reason, "lease was lost") {
			t.Errorf("notes: %+v", notes)
		}
	})
}

func TestNodeThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testOf("one", "one", evidence.ScopeNode, names(1))
		one.Repeat, one.Retries = 3, 0
		b := newBay(t, planOf(names(1), one))
		n := 0
		b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			if n++; n == 1 {
				b.rack.kill("n01", evidence.ClassTCP)
				time.AfterFunc(8*time.Second, func() { b.rack.revive("n01", "second") })
			}
			return lasting(10*time.Second, "1")(ctx, task, out, errs)
		})
		b.plan.Tests[0].Retries = 0
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		results := b.results()
		if a := results["one/n01.r1"].Attempts; len(a) != 1 || a[0].Problems[0].Class != evidence.ClassLost {
			t.Errorf("repetition 1: %+v", a)
		}
		for _, id := range []string{"one/n01.r2", "one/n01.r3"} {
			if s := results[id].Skipped; s == nil || s.Class != evidence.ClassTCP {
				t.Errorf("%s: want skipped: %+v", id, results[id])
			}
		}
		// The run was not closed, so the skipped cells get another chance.
		if err := wait(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		results = b.results()
		want(t, "attempts of repetition 1", len(results["one/n01.r1"].Attempts), 1)
		for _, id := range []string{"one/n01.r2", "one/n01.r3"} {
			if a := results[id].Attempts; len(a) != 1 || len(a[0].Problems) > 0 {
				t.Errorf("%s: %+v", id, results[id])
			}
		}
		gates := b.events(evidence.EventGate)
		want(t, "gates", len(gates), 2)
		// Asked to, it tries the lost one again.
		b.set = func(o *Options) { o.RetryClasses = []evidence.Class{evidence.ClassLost} }
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := b.results()["one/n01.r1"].Attempts; len(a) != 2 || len(a[1].Problems) > 0 {
			t.Errorf("repetition 1, asked again: %+v", a)
		}
		gates = b.events(evidence.EventGate)
		want(t, "the last gate", gates[len(gates)-1].Gate.Met, true)
	})
}

func TestAnotherMachineAnswersDuringTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testOf("one", "one", evidence.ScopeNode, names(1))
		one.Repeat = 2
		b := newBay(t, planOf(names(1), one))
		b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			b.rack.kill("n01", evidence.ClassTCP)
			b.rack.revive("n01", "boot-n01")
			b.rack.machine("n01").machineID = "other"
			return printing("1")(ctx, task, out, errs)
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "work done", len(b.rack.calls(running("work"))), 1)
		if s := b.results()["one/n01.r2"].Skipped; s == nil || s.Class != evidence.ClassInterrupted || !strings.Contains(s.Detail, `"other"`) {
			t.Errorf("the other machine was measured: %+v", b.results()["one/n01.r2"])
		}
	})
}

func TestRestartDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBay(t, planOf(names(1), testOf("one", "one", evidence.ScopeNode, names(1))))
		b.rack.on("n01", "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
			b.rack.kill("n01", evidence.ClassTCP)
			b.rack.revive("n01", "second")
			return printing("1")(ctx, task, out, errs)
		})
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var classes []evidence.Class
		for _, p := range b.results()["one/n01.r1"].Attempts[0].Problems {
			classes = append(classes, p.Class)
		}
		want(t, "classes", classes, []evidence.Class{evidence.ClassLost, evidence.ClassInterrupted})
	})
}

func TestCaptures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := names(3)
		b := newBay(t, planOf(nodes, testOf("one", "one", evidence.ScopeNode, nodes[:2])))
		b.plan.Captures = evidence.Captures{Commands: [][]string{{"/usr/bin/snapshot", "-q"}, {"hang"}}, Deadline: evidence.Duration(5 * time.Second)}
		b.rack.on("n01", "/usr/bin/snapshot", printing("state"))
		b.rack.on("n01", "hang", lasting(time.Hour, ""))
		b.rack.kill("n02", evidence.ClassTCP)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range b.events(evidence.EventCapture) {
			class := evidence.ClassOK
			if r.Problem != nil {
				class = r.Problem.Class
			}
			got = append(got, r.Path+" "+string(class))
		}
		want(t, "captures", got, []string{
			"captures/one/start/n01/1-snapshot ok", "captures/one/start/n01/2-hang timeout",
			"captures/one/end/n01/1-snapshot ok", "captures/one/end/n01/2-hang timeout",
		})
		text, err := os.ReadFile(b.dir + "/captures/one/end/n01/1-snapshot/stdout")
		if err != nil || string(text) != "state\n" {
			t.Errorf("%q, %v", text, err)
		}
	})
}
