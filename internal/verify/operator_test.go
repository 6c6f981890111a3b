package verify

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// each changes every record of one event.
func (r rig) each(t *testing.T, event evidence.Event, change func(*evidence.Record)) {
	t.Helper()
	r.journal(t, func(records []evidence.Record) []evidence.Record {
		for i := range records {
			if records[i].Event == event {
				change(&records[i])
			}
		}
		return records
	})
}

// insert puts a record before the one that closes the run.
func (r rig) insert(t *testing.T, record ...evidence.Record) {
	t.Helper()
	r.journal(t, func(records []evidence.Record) []evidence.Record {
		return slices.Insert(records, len(records)-1, record...)
	})
}

// frauds are what an operator might do who holds the key: everything that can
// be made to agree is, and the signature is good.
var frauds = []damage{
	{name: "a node that was never identified", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			return without(records, func(record evidence.Record) bool { return record.Event == evidence.EventNode && record.Node == "n02" })
		})
	}, code: CodeInventory, path: evidence.JournalPath},
	{name: "a node that could not be used", do: func(t *testing.T, r rig) {
		r.each(t, evidence.EventNode, func(record *evidence.Record) {
			record.Identity.Problem = &evidence.Problem{Node: record.Node, Class: evidence.ClassHostKeyMismatch, Detail: "x"}
			record.Problem = record.Identity.Problem
		})
	}, code: CodeInventory, path: evidence.JournalPath},
	{name: "a line that identifies another node", do: func(t *testing.T, r rig) {
		r.each(t, evidence.EventNode, func(record *evidence.Record) { record.Identity.Node = "n01" })
	}, code: CodeInventory, path: evidence.JournalPath + ":3"},
	{name: "inventory of another machine", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.InventoryPath, `"node": "n01",`, `"node": "n01", "serial": "GOOD",`)
	}, code: CodeInventory, path: evidence.InventoryPath + "#nodes?n01?"},
	{name: "inventory without a node", do: func(t *testing.T, r rig) {
		data := r.read(t, evidence.InventoryPath)
		from := bytes.LastIndex(data, []byte(",\n    {"))
		r.write(t, evidence.InventoryPath, append(data[:from:from], "\n  ]\n}\n"...))
	}, code: CodeInventory, path: evidence.InventoryPath},
	{name: "inventory of another executor", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.InventoryPath, `"executor": "local"`, `"executor": "ssh"`)
	}, code: CodeInventory, path: evidence.InventoryPath},
	{name: "output of one node for another", do: func(t *testing.T, r rig) {
		for _, name := range []string{"stdout", "stderr", "exit.json"} {
			r.write(t, "cells/rate/n02.r1/1/raw/command.n02/"+name, r.read(t, "cells/rate/n01.r1/1/raw/command.n01/"+name))
		}
		r.attempt(t, "rate/n02.r1", nil)
	}, code: CodeRawTwice, path: "cells/rate/n0?.r1/1/raw/command.n0?/exit.json"},
	{name: "failure that is called a cut", do: func(t *testing.T, r rig) {
		r.attempt(t, "rate/n02.r1", func(a *evidence.Attempt) {
			a.Cut = true
			a.Problems = []evidence.Problem{{Class: evidence.ClassCut, Detail: "the run was ended during this attempt"}}
		})
	}, code: CodeCutUnexplained, path: "cells/rate/n02.r1/1/attempt.json"},
	{name: "gate taken out", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			return without(records, func(record evidence.Record) bool { return record.Event == evidence.EventGate })
		})
	}, code: CodeGateMissing, path: evidence.JournalPath},
	{name: "gate of another phase", do: func(t *testing.T, r rig) {
		r.each(t, evidence.EventGate, func(record *evidence.Record) { record.Phase = "other" })
	}, code: CodeGateDiffers, path: evidence.JournalPath},
	{name: "gate record without a gate", do: func(t *testing.T, r rig) {
		r.each(t, evidence.EventGate, func(record *evidence.Record) { record.Gate = nil })
	}, code: CodeGateDiffers, path: evidence.JournalPath},
	{name: "more gates than anybody derives", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			at := slices.IndexFunc(records, func(record evidence.Record) bool { return record.Event == evidence.EventGate })
			return slices.Insert(records, at, slices.Repeat(records[at:at+1], maxGates)...)
		})
	}, code: CodeGateDiffers, path: evidence.JournalPath},
	{name: "capture that is not there", do: func(t *testing.T, r rig) {
		r.insert(t, evidence.Record{Event: evidence.EventCapture, Phase: "node", Node: "n01", Path: "captures/node/start/n01/1-df",
			Files: []evidence.File{{Path: "stdout", Size: 1, Digest: evidence.DigestOf([]byte("x"))}}})
	}, code: CodeRawDiffers, path: "captures/node/start/n01/1-df/stdout"},
	{name: "capture among the cells", do: func(t *testing.T, r rig) {
		r.write(t, "cells/rate/n01.r1/2/raw/x", []byte("x"))
		r.insert(t, evidence.Record{Event: evidence.EventCapture, Path: "cells/rate/n01.r1/2/raw",
			Files: []evidence.File{{Path: "x", Size: 1, Digest: evidence.DigestOf([]byte("x"))}}})
	}, code: CodeAttemptExtra, path: "cells/rate/n01.r1/2/raw/x"},
	{name: "capture that no record names", do: func(t *testing.T, r rig) { r.write(t, "captures/node/start/n01/1-df/stdout", []byte("x")) },
		code: CodeFileUnexplained, path: "captures/node/start/n01/1-df/stdout"},
	{name: "file that nothing explains", do: func(t *testing.T, r rig) { r.write(t, "run/verdict.pdf", []byte("PASS")) },
		code: CodeFileUnexplained, path: "run/verdict.pdf"},
	{name: "source that the plan does not have", do: func(t *testing.T, r rig) { r.write(t, evidence.RunbookDir+"/b.hcl", []byte("x")) },
		code: CodeFileUnexplained, path: evidence.RunbookDir + "/b.hcl"},
	{name: "tail taken out", do: func(t *testing.T, r rig) {
		r.insert(t, evidence.Record{Event: evidence.EventResume, Torn: "run/torn-1"})
	}, code: attest.CodeFileMissing, path: "run/torn-1"},
	{name: "tail that is none", do: func(t *testing.T, r rig) {
		r.write(t, "run/verdict.pdf", []byte("PASS"))
		r.insert(t, evidence.Record{Event: evidence.EventNote, Path: "run/verdict.pdf", Reason: "x"})
	}, code: CodeFileUnexplained, path: "run/verdict.pdf"},
	{name: "clock further off than the plan allows", do: func(t *testing.T, r rig) {
		offset := 99999.0
		r.each(t, evidence.EventNode, func(record *evidence.Record) { record.Identity.ClockOffset = &offset })
	}, code: CodeInventory, path: evidence.JournalPath},
	{name: "clock that was not read", do: func(t *testing.T, r rig) {
		r.each(t, evidence.EventNode, func(record *evidence.Record) { record.Identity.ClockOffset = nil })
	}, code: CodeInventory, path: evidence.JournalPath},
	{name: "tool of another check version", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.ToolPath, `"command": 1`, `"command": 99`)
	}, code: CodeTool, path: evidence.ToolPath + "#checks?command?"},
	{name: "earlier seal taken out", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			last := records[len(records)-1]
			return append(records, evidence.Record{Event: evidence.EventReopen, Time: last.Time, Seal: evidence.DigestOf(nil)}, last)
		})
	}, code: attest.CodeFileMissing, path: evidence.JournalPath},
}

func TestFrauds(t *testing.T) {
	good := newRig(t, small, nil)
	for _, d := range frauds {
		t.Run(d.name, func(t *testing.T) {
			r := good.copied(t)
			d.do(t, r)
			r.rederive(t)
			r.resign(t)
			d.level = attest.Attested
			d.check(t, r.verify(t, r.options()))
		})
	}
}

// faulty is the small runbook with something broken beside the tool.
func faulty(t *testing.T) string {
	text := edited(t, `duration = "5s"`, "duration = \"5s\"\n  hazard   = \"leaves_a_mark\"")
	text = strings.Replace(text, `argv  = ["printf", "rate 42.5\ndone\n"]`, `argv  = ["sh", "-c", "sleep 0.2; printf 'rate 42.5\ndone\n'"]`, 1)
	return strings.Replace(text, `  threshold "rate" {`, `  fault "command" {
    nodes  = fleet.bench
    after  = "10ms"
    for    = "10ms"
    inject = ["true"]
    undo   = ["true"]
  }

  threshold "rate" {`, 1)
}

// damaged verifies a run of two cells of which one attempt does not agree with
// the journal or with itself, although everything else was made to.
func (r rig) damaged(t *testing.T, want string) {
	t.Helper()
	r.rederive(t)
	r.resign(t)
	report := r.verify(t, r.options())
	// The gate was met, and with this it is not: that alone is refused.
	if report.Exit != ExitUntrusted || report.Verdict.Outcome != evidence.Error || report.Verdict.Coverage.Measured != 1 {
		t.Fatalf("exit %d, outcome %s, %d cells measured, failures %q", report.Exit, report.Verdict.Outcome, report.Verdict.Coverage.Measured, codes(report))
	}
	if open := report.Verdict.Coverage.Open; len(open) != 1 || !strings.Contains(open[0].Problem.Detail, want) {
		t.Fatalf("open: %+v, want %q", open, want)
	}
}

func TestAttemptsAgreeWithTheirTimes(t *testing.T) {
	const step = "cells/rate/n02.r1/1/raw/command.n02/"
	good := newRig(t, small, nil)
	for _, c := range []struct {
		name string
		do   func(*testing.T, rig)
		want string
	}{
		{"an attempt that began at another time", func(t *testing.T, r rig) {
			r.attempt(t, "rate/n02.r1", func(a *evidence.Attempt) { a.Start = a.Start.Add(-500 * time.Millisecond) })
		}, "it starts at"},
		{"an attempt that ended after its record", func(t *testing.T, r rig) {
			r.attempt(t, "rate/n02.r1", func(a *evidence.Attempt) { a.End = a.End.Add(time.Hour) })
		}, "it ends at"},
		{"a command of another year", func(t *testing.T, r rig) {
			r.write(t, step+"exit.json", bytes.ReplaceAll(r.read(t, step+"exit.json"), []byte(`: "2`), []byte(`: "1`)))
			r.attempt(t, "rate/n02.r1", nil)
		}, "it ran from 1"},
		{"an exit.json with a space more", func(t *testing.T, r rig) {
			r.write(t, step+"exit.json", append(r.read(t, step+"exit.json"), " \n"...))
			r.attempt(t, "rate/n02.r1", nil)
		}, "not written as this program writes it"},
		{"a problem that is none", func(t *testing.T, r rig) {
			r.attempt(t, "rate/n02.r1", func(a *evidence.Attempt) {
				a.Problems = append(a.Problems, evidence.Problem{Class: evidence.ClassOK, Detail: "x"})
			})
		}, "it has a problem of class"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := good.copied(t)
			c.do(t, r)
			r.damaged(t, c.want)
		})
	}
}

// TestCapturesAreThere: what the plan keeps of a node that was well cannot be
// left out.
func TestCapturesAreThere(t *testing.T) {
	good := newRig(t, edited(t, `test "rate" {`, "evidence {\n  capture = [[\"uname\", \"-r\"]]\n}\n\ntest \"rate\" {"), nil)
	if report := good.verify(t, good.options()); report.Exit != 0 || report.Level != attest.Reproduced {
		t.Fatalf("honest run: exit %d, level %s, failures %q", report.Exit, report.Level, codes(report))
	}
	r := good.copied(t)
	must(t, os.RemoveAll(r.path("captures/node/end/n01")))
	r.journal(t, func(records []evidence.Record) []evidence.Record {
		return without(records, func(record evidence.Record) bool {
			return record.Event == evidence.EventCapture && strings.HasPrefix(record.Path, "captures/node/end/n01/")
		})
	})
	r.rederive(t)
	r.resign(t)
	damage{code: CodeCaptureMissing, path: "captures/node/end/n01", level: attest.Attested}.check(t, r.verify(t, r.options()))
}

// TestUndoIsThePlans: what the journal would have run to mend a node is what
// the fault's kind runs.
func TestUndoIsThePlans(t *testing.T) {
	r := newRig(t, faulty(t), nil)
	r.each(t, evidence.EventFaultOpen, func(record *evidence.Record) { record.Undo = nil })
	r.rederive(t)
	r.resign(t)
	damage{code: CodeFaultDiffers, path: evidence.JournalPath, level: attest.Attested}.check(t, r.verify(t, r.options()))
}

// A test that breaks something passes only if it was broken: the tool's own
// output looks the same where it was not.
func TestFaultsWereCarriedOut(t *testing.T) {
	const log = "cells/rate/n01.r1/1/raw/faults.jsonl"
	good := newRig(t, faulty(t), nil)
	if report := good.verify(t, good.options()); report.Exit != 0 || report.Level != attest.Reproduced {
		t.Fatalf("honest run: exit %d, level %s, failures %q", report.Exit, report.Level, codes(report))
	}
	drop := func(event evidence.Event) func(*testing.T, rig) {
		return func(t *testing.T, r rig) {
			r.journal(t, func(records []evidence.Record) []evidence.Record {
				return without(records, func(record evidence.Record) bool { return record.Event == event && record.Cell == "rate/n01.r1" })
			})
		}
	}
	keep := func(line string) func(*testing.T, rig) {
		return func(t *testing.T, r rig) {
			lines := strings.SplitAfter(string(r.read(t, log)), "\n")
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, line) })
			r.write(t, log, []byte(strings.Join(lines, "")))
			r.attempt(t, "rate/n01.r1", nil)
		}
	}
	for _, c := range []struct {
		name string
		do   func(*testing.T, rig)
		want string
	}{
		{"no record of the injection", drop(evidence.EventFaultOpen), "was never injected"},
		{"no record of the undo", drop(evidence.EventFaultClose), "was never undone"},
		{"no line of the injection", keep(`"injected"`), "has no line that it was injected"},
		{"no line of the undo", keep(`"undone"`), "has no line that it was undone"},
		{"an injection that went wrong", func(t *testing.T, r rig) {
			r.replace(t, log, `"event":"undo_start"`, `"event":"error"`)
			r.attempt(t, "rate/n01.r1", nil)
		}, "went wrong"},
		{"no log", func(t *testing.T, r rig) {
			r.write(t, log, nil)
			r.attempt(t, "rate/n01.r1", nil)
		}, "has no line that it was injected"},
		{"an admission that is none", func(t *testing.T, r rig) {
			r.write(t, log, nil)
			r.attempt(t, "rate/n01.r1", func(a *evidence.Attempt) {
				a.Problems = append(a.Problems, evidence.Problem{Step: "fault", Class: evidence.ClassExit, Detail: "x"})
			})
		}, "has no line that it was injected"},
		{"an injection of another year", func(t *testing.T, r rig) {
			r.write(t, log, bytes.ReplaceAll(r.read(t, log), []byte(`"time":"20`), []byte(`"time":"30`)))
			r.attempt(t, "rate/n01.r1", nil)
		}, "was injected at 30"},
		{"records after the attempt", func(t *testing.T, r rig) {
			r.journal(t, func(records []evidence.Record) []evidence.Record {
				var moved []evidence.Record
				records = without(records, func(record evidence.Record) bool {
					of := record.Cell == "rate/n01.r1" && (record.Event == evidence.EventFaultOpen || record.Event == evidence.EventFaultClose)
					if of {
						record.Time = time.Time{}
						moved = append(moved, record)
					}
					return of
				})
				return slices.Insert(records, len(records)-1, moved...)
			})
		}, "was never injected"},
		{"another fault in the journal", func(t *testing.T, r rig) {
			r.each(t, evidence.EventFaultOpen, func(record *evidence.Record) {
				if record.Cell == "rate/n01.r1" {
					record.Fault = &evidence.Fault{Kind: "process_kill", Nodes: record.Fault.Nodes}
				}
			})
		}, "is another one in the journal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := good.copied(t)
			c.do(t, r)
			r.damaged(t, c.want)
		})
	}
}

func TestOneMachineUnderTwoNames(t *testing.T) {
	identity := func(node, machine, serial, key string) evidence.Record {
		return evidence.Record{Event: evidence.EventNode, Node: node, Identity: &evidence.NodeIdentity{Node: node, MachineID: machine, Serial: serial, HostKey: key}}
	}
	for _, c := range []struct {
		name    string
		records []evidence.Record
		shared  bool
		want    []string
	}{
		{"two machines", []evidence.Record{identity("n01", "a", "", ""), identity("n02", "b", "", "")}, false, nil},
		{"one machine", []evidence.Record{identity("n01", "a", "", ""), identity("n02", "a", "", "")}, false,
			[]string{"nodes n01 and n02 are one machine, and the plan does not allow that"}},
		{"one machine, allowed", []evidence.Record{identity("n01", "a", "", ""), identity("n02", "a", "", "")}, true, nil},
		{"another machine later", []evidence.Record{identity("n01", "a", "s", "k"), identity("n02", "b", "", ""), identity("n01", "c", "s", "k")}, false,
			[]string{"another machine answers by the name of node n01: its machine id has changed"}},
		{"another host key later", []evidence.Record{identity("n01", "a", "s", "k"), identity("n02", "b", "", ""), identity("n01", "a", "", "l")}, false,
			[]string{"another machine answers by the name of node n01: its host key has changed"}},
	} {
		content := &content{
			plan:    &evidence.Plan{SharedMachine: c.shared, Fleet: evidence.Fleet{Nodes: []evidence.Node{{Name: "n01"}, {Name: "n02"}}}},
			records: c.records, inventory: &evidence.Inventory{},
		}
		for _, node := range []int{0, 1} { // as the runner lists them: each as it was first reached
			content.inventory.Nodes = append(content.inventory.Nodes, *c.records[node].Identity)
		}
		s := newStep(stepMeasurements)
		checkNodes(content, s)
		var got []string
		for _, f := range s.failures {
			got = append(got, f.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A run that is stopped before it comes to a node is no fraud.
func TestInventoryOfWhatWasReached(t *testing.T) {
	first, second := evidence.NodeIdentity{Node: "n01", MachineID: "a"}, evidence.NodeIdentity{Node: "n02", MachineID: "b"}
	record := func(id evidence.NodeIdentity) evidence.Record {
		return evidence.Record{Event: evidence.EventNode, Node: id.Node, Identity: &id}
	}
	start := evidence.Record{Event: evidence.EventAttemptStart, Cell: "t/n01.r1", Attempt: 1}
	for _, c := range []struct {
		name     string
		records  []evidence.Record
		nodes    []evidence.NodeIdentity
		failures int
	}{
		{"nobody", []evidence.Record{{Event: evidence.EventOpen}}, []evidence.NodeIdentity{}, 0},
		{"nobody, in blanks", []evidence.Record{{Event: evidence.EventOpen}}, []evidence.NodeIdentity{{}, {}}, 0},
		{"one", []evidence.Record{record(first), start}, []evidence.NodeIdentity{first}, 0},
		{"one, and a blank", []evidence.Record{record(first), start}, []evidence.NodeIdentity{first, {}}, 0},
		{"both", []evidence.Record{record(first), record(second), start}, []evidence.NodeIdentity{first, second}, 0},
		{"one in place of both", []evidence.Record{record(first), record(second), start}, []evidence.NodeIdentity{first}, 1},
		{"both in another order", []evidence.Record{record(first), record(second), start}, []evidence.NodeIdentity{second, first}, 1},
		{"one twice", []evidence.Record{record(first), start}, []evidence.NodeIdentity{first, first}, 1},
		{"one that was never reached", []evidence.Record{record(first), start}, []evidence.NodeIdentity{first, second}, 1},
		{"an attempt on nobody", []evidence.Record{start}, []evidence.NodeIdentity{}, 1},
	} {
		content := &content{
			plan: &evidence.Plan{
				Fleet: evidence.Fleet{Nodes: []evidence.Node{{Name: "n01"}, {Name: "n02"}}},
				Cells: []evidence.Cell{{ID: "t/n01.r1", Nodes: "n01"}},
			},
			records: c.records, inventory: &evidence.Inventory{Nodes: c.nodes},
		}
		s := newStep(stepMeasurements)
		checkNodes(content, s)
		if len(s.failures) != c.failures {
			t.Errorf("%s: %+v, want %d", c.name, s.failures, c.failures)
		}
	}
}

// A run that goes on after a year, and is closed today, is a year old.
func TestAgeIsThatOfTheOldestAttempt(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	old := now.AddDate(-1, 0, 0)
	attempt := func(number int, cut bool, end time.Time) evidence.MeasuredAttempt {
		return evidence.MeasuredAttempt{Attempt: evidence.Attempt{Number: number, Cut: cut, End: end}}
	}
	for _, c := range []struct {
		name     string
		attempts []evidence.MeasuredAttempt
		ended    time.Time // of attempt 1, by the journal
		state    attest.State
	}{
		{"young", []evidence.MeasuredAttempt{attempt(1, false, now)}, now, attest.OK},
		{"old by its own document", []evidence.MeasuredAttempt{attempt(1, false, old)}, now, attest.Failed},
		{"old by the journal", []evidence.MeasuredAttempt{attempt(1, false, now)}, old, attest.Failed},
		{"old and made again", []evidence.MeasuredAttempt{attempt(1, false, old), attempt(2, false, now)}, old, attest.OK},
		{"old and cut again", []evidence.MeasuredAttempt{attempt(1, false, old), attempt(2, true, now)}, old, attest.Failed},
	} {
		content := &content{plan: &evidence.Plan{}, records: []evidence.Record{
			{Event: evidence.EventOpen, Time: old},
			{Event: evidence.EventAttemptEnd, Time: c.ended, Cell: "a", Attempt: 1},
			{Event: evidence.EventClose, Time: now},
		}}
		o := Options{At: now}
		o.Policy.Require.MaxAge = evidence.Duration(time.Hour)
		results := []evidence.CellResult{{Cell: evidence.Cell{ID: "a"}, Attempts: c.attempts}}
		if got := release(content, o, results, verdict(evidence.Pass), nil); got.State != c.state {
			t.Errorf("%s: %s, %+v", c.name, got.State, got.Failures)
		}
	}
}

// Trying until it passes is more than one retry.
func TestAttemptsBeyondThePlanCount(t *testing.T) {
	for _, c := range []struct {
		whole, cut, retries, accept int
		state                       attest.State
	}{
		{whole: 2, retries: 1, accept: 1, state: attest.OK},
		{whole: 2, retries: 0, accept: 1, state: attest.OK},
		{whole: 2, cut: 5, retries: 1, accept: 1, state: attest.OK},
		{whole: 3, retries: 0, accept: 1, state: attest.Failed},
		{whole: 50, retries: 2, accept: 46, state: attest.Failed},
		{whole: 50, retries: 2, accept: 47, state: attest.OK},
	} {
		result := evidence.CellResult{Cell: evidence.Cell{ID: "a", Test: "t"}}
		for i := range c.whole + c.cut {
			result.Attempts = append(result.Attempts, evidence.MeasuredAttempt{Attempt: evidence.Attempt{Number: i + 1, Cut: i >= c.whole}})
		}
		v := verdict(evidence.Pass)
		v.Coverage.Retried = []string{"a"}
		o := Options{}
		o.Policy.Accept.Retried = c.accept
		content := &content{plan: &evidence.Plan{Tests: []evidence.Test{{Name: "t", Retries: c.retries}}}}
		if got := release(content, o, []evidence.CellResult{result}, v, nil); got.State != c.state {
			t.Errorf("%+v: %s, %+v", c, got.State, got.Failures)
		}
	}
}
