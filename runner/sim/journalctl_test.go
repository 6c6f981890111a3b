package sim_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// A program's line in the kernel's log is one of a user, in both tools.
func TestKernelLogHasMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: nodeNames(1), Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		run := func(stdin string, argv ...string) string {
			var out, errs bytes.Buffer
			exit, err := x.Exec(t.Context(), evidence.Task{Node: "gpu001", Argv: argv, Stdin: []byte(stdin)}, &out, &errs)
			if err != nil || exit.Code == nil || *exit.Code != 0 {
				t.Fatalf("%q: %v, %+v, %s", argv, err, exit, errs.String())
			}
			return out.String()
		}
		run("rackproof begin 0123\n", "tee", "/dev/kmsg")
		<-time.After(90 * time.Second) // of the bubble's clock
		run("<3>rackproof end 4567\n", "tee", "/dev/kmsg")
		lines := strings.SplitAfter(run("", "dmesg", "-x"), "\n")
		if got, want := strings.Join(lines[len(lines)-3:], ""), "user  :warn  : [ 2520.000000] rackproof begin 0123\nuser  :err   : [ 2610.000000] rackproof end 4567\n"; got != want {
			t.Errorf("dmesg ends with %q, want %q", got, want)
		}
		if got, want := run("", "journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "-p", "err"), "2000-01-01T00:01:30+0000 gpu001 unknown: rackproof end 4567\n"; got != want {
			t.Errorf("journalctl says %q, want %q", got, want)
		}
		if got, want := run("", "journalctl", "-k", "-n", "1", "--since=2000-01-01 00:01:00"), "Jan 01 00:01:30 gpu001 unknown: rackproof end 4567\n"; got != want {
			t.Errorf("journalctl says %q, want %q", got, want)
		}
		var line struct {
			Message   string `json:"MESSAGE"`
			Realtime  string `json:"__REALTIME_TIMESTAMP"`
			Monotonic string `json:"__MONOTONIC_TIMESTAMP"`
			Priority  string `json:"PRIORITY"`
		}
		if err := json.Unmarshal([]byte(run("", "journalctl", "-k", "-o", "json", "-n", "1")), &line); err != nil {
			t.Fatal(err)
		}
		if line.Message != "rackproof end 4567" || line.Realtime != "946684890000000" || line.Monotonic != "2610000000" || line.Priority != "3" {
			t.Errorf("journalctl -o json says %+v", line)
		}
	})
}
