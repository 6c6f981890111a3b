package checks_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// These tests run the real tools of this machine, for a second or two each.

func TestRealCommand(t *testing.T) {
	t.Run("good_getconf", func(t *testing.T) {
		b := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, `{
			"argv": ["printf", "page size: 4096 bytes\nwarning: slow\nwarning: hot\ndone in 1.5 s\n"], "expect_exit": 0, "proof": "^done in",
			"metric": [
				{"name": "page", "unit": "B", "regex": "^page size: (.*) bytes$"},
				{"name": "warnings", "unit": "1", "count": "^warning:", "accumulates": true},
				{"name": "errors", "unit": "1", "count": "^error:"}
			],
			"fact": [{"name": "wall", "regex": "^done in (.*)$"}]
		}`)
		a := b.drive(t.Context())
		wantClasses(t, a)
		if got := value(t, a, "page", "n1"); got != 4096 {
			t.Errorf("page is %g, want 4096", got)
		}
		if got := value(t, a, "warnings", "n1"); got != 2 {
			t.Errorf("warnings is %g, want 2", got)
		}
		if got := value(t, a, "errors", "n1"); got != 0 {
			t.Errorf("errors is %g, want 0", got)
		}
		if got := fact(t, a, "wall", "n1").Value; got != "1.5 s" {
			t.Errorf("wall is %q, want 1.5 s", got)
		}
	})
	t.Run("good_lscpu_json", func(t *testing.T) {
		b := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, `{
			"argv": ["lscpu", "-J"], "expect_exit": 0, "proof": "^}$",
			"metric": [{"name": "cpus", "unit": "1", "json": "/lscpu/4/data"}],
			"fact": [{"name": "arch", "json": "lscpu.0.data"}]
		}`)
		a := b.drive(t.Context())
		wantClasses(t, a)
		if got := value(t, a, "cpus", "n1"); got < 1 {
			t.Errorf("cpus is %g, want at least 1", got)
		}
	})
	t.Run("wrong_exit", func(t *testing.T) {
		b := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, `{"argv": ["sh", "-c", "echo done; exit 3"], "expect_exit": 0, "proof": "^done$"}`)
		wantClasses(t, b.drive(t.Context()), evidence.ClassExit)
	})
	t.Run("no_tool", func(t *testing.T) {
		b := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, `{"argv": ["rackproof-no-such-tool"], "expect_exit": 0, "proof": "^done$"}`)
		wantClasses(t, b.drive(t.Context()), evidence.ClassToolMissing)
	})
}

func TestRealInventory(t *testing.T) {
	t.Run("good_node", func(t *testing.T) {
		b := newBench(t, "inventory", evidence.ScopeNode, "30s", []string{"n1"}, `{"version": [
			{"name": "fio", "argv": ["fio", "--version"], "regex": "^fio-(.*)$"},
			{"name": "bash", "argv": ["bash", "--version"], "regex": "bash, version ([0-9.]+)", "proof": "^There is NO WARRANTY"}
		]}`)
		arch := "x86_64"
		b.view.Fleet.Expect = []evidence.Expectation{{Fact: "arch", Value: "= " + arch}, {Fact: "cpus", Value: "4096"}}
		a := b.drive(t.Context())
		wantClasses(t, a)
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if got := fact(t, a, "hostname", "n1").Value; got != host {
			t.Errorf("hostname is %q, want %q", got, host)
		}
		if got := fact(t, a, "fio_version", "n1").Value; !strings.HasPrefix(got, "3.") {
			t.Errorf("fio_version is %q, want 3.x", got)
		}
		if got := value(t, a, "mismatches", "n1"); got < 1 {
			t.Errorf("mismatches is %g although no machine has 4096 CPUs here", got)
		}
		if got := value(t, a, "clock_offset", "n1"); got > 1 {
			t.Errorf("clock_offset from ourselves is %g s", got)
		}
		if got := value(t, a, "memory_total", "n1"); got <= 0 {
			t.Errorf("memory_total is %g GiB", got)
		}
	})
}

// scratch is a directory on a filesystem that takes direct writes, and that
// filesystem's type.
func scratch(t *testing.T) (dir, fstype string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, fmt.Sprintf(
		`{"argv": ["findmnt", "-J", "-o", "FSTYPE", "-T", %q], "expect_exit": 0, "proof": "^}$", "fact": [{"name": "fstype", "json": "filesystems.0.fstype"}]}`, dir))
	return dir, fact(t, b.drive(t.Context()), "fstype", "n1").Value
}

func TestRealStorageFio(t *testing.T) {
	params := func(t *testing.T, profile, clients string) (string, string) {
		dir, fstype := scratch(t)
		return dir, fmt.Sprintf(`{"path": %q, "filesystem": %q, "profile": %q, "clients": %s, "runtime": "1s", "ramp": "0s",
			"size": "4MiB", "jobs": 2, "direct": false, "engine": "psync", "iodepth": 1, "block_size": "4KiB"}`, dir, fstype, profile, clients)
	}
	empty := func(t *testing.T, dir string) {
		t.Helper()
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	t.Run("good_fleet_reads", func(t *testing.T) {
		dir, p := params(t, "small_reads", "[1, 2]")
		b := newBench(t, "storage_fio", evidence.ScopeFleet, "30s", []string{"n1", "n2"}, p)
		a := b.drive(t.Context())
		wantClasses(t, a)
		both := value(t, a, "iops", "n1", "clients", "2") + value(t, a, "iops", "n2", "clients", "2")
		if total := value(t, a, "total_iops", "fleet", "clients", "2"); total != both || total <= 0 {
			t.Errorf("total_iops is %g and the clients have %g", total, both)
		}
		if fair := value(t, a, "fairness", "fleet", "clients", "2"); fair <= 0 || fair > 1 {
			t.Errorf("fairness is %g, want above 0 and up to 1", fair)
		}
		empty(t, dir)
	})
	t.Run("good_node_fsync", func(t *testing.T) {
		dir, p := params(t, "fsync", "[1]")
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, p)
		a := b.drive(t.Context())
		wantClasses(t, a)
		if got := value(t, a, "fsync_p99", "n1"); got <= 0 {
			t.Errorf("fsync_p99 is %g ms", got)
		}
		empty(t, dir)
	})
	t.Run("good_node_write", func(t *testing.T) {
		dir, p := params(t, "sequential_write", "[1]")
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, p)
		a := b.drive(t.Context())
		wantClasses(t, a)
		if got := value(t, a, "write_bw", "n1"); got <= 0 {
			t.Errorf("write_bw is %g MiB/s", got)
		}
		empty(t, dir)
	})
	t.Run("good_node_mount", func(t *testing.T) {
		dir, p := params(t, "small_reads", "[1]")
		mount := newBench(t, "command", evidence.ScopeNode, "5s", []string{"n1"}, fmt.Sprintf(
			`{"argv": ["findmnt", "-J", "-o", "TARGET", "-T", %q], "expect_exit": 0, "proof": "^}$", "fact": [{"name": "target", "json": "filesystems.0.target"}]}`, dir))
		target := fact(t, mount.drive(t.Context()), "target", "n1").Value
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, strings.Replace(p, `"profile"`, fmt.Sprintf(`"mount": %q, "profile"`, target), 1))
		a := b.drive(t.Context())
		wantClasses(t, a)
		if got := fact(t, a, "mount_target", "n1").Value; got != target {
			t.Errorf("mount_target is %q, want %q", got, target)
		}
		empty(t, dir)
	})
	t.Run("wrong_filesystem", func(t *testing.T) {
		dir, p := params(t, "small_reads", "[1]")
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, p)
		b.view.Test.Params = []byte(strings.Replace(p, `"filesystem": "`, `"filesystem": "x`, 1))
		a := b.drive(t.Context())
		if len(a.Measurements) > 0 || len(a.Unmeasured) == 0 {
			t.Errorf("measured %v with problems %v", a.Measurements, a.Unmeasured)
		}
		if len(a.Problems) != 1 || a.Problems[0].Class != evidence.ClassWrongFilesystem {
			t.Errorf("Drive says %v, want one wrong-filesystem", a.Problems)
		}
		empty(t, dir)
	})
	t.Run("mount_missing", func(t *testing.T) {
		dir, p := params(t, "small_reads", "[1]")
		missing := filepath.Join(dir, "missing")
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, strings.Replace(p, dir, missing, 1))
		a := b.drive(t.Context())
		wantClasses(t, a, evidence.ClassMountMissing)
		if _, err := os.Stat(missing); err == nil {
			t.Error("the missing path was created")
		}
	})
	t.Run("wrong_mount", func(t *testing.T) {
		dir, p := params(t, "small_reads", "[1]")
		b := newBench(t, "storage_fio", evidence.ScopeNode, "30s", []string{"n1"}, strings.Replace(p, `"profile"`, `"mount": "/mnt/pfs", "profile"`, 1))
		a := b.drive(t.Context())
		wantClasses(t, a, evidence.ClassMountMissing)
		if len(a.Problems) != 1 || a.Problems[0].Class != evidence.ClassMountMissing || len(a.Measurements) > 0 {
			t.Errorf("Drive says %v, want one mount-missing; measured %v", a.Problems, a.Measurements)
		}
		empty(t, dir)
	})
}

func TestRealHostBurn(t *testing.T) {
	const params = `{"stressors": ["cpu", "matrix"], "workers": 1, "method": "loop", "vm_bytes": "16MiB", "load_floor": 10, "sample": "200ms", "kernel_log": false}`
	t.Run("good_burn", func(t *testing.T) {
		b := newBench(t, "host_burn", evidence.ScopeNode, "2s", []string{"n1"}, params)
		a := b.drive(t.Context())
		wantClasses(t, a)
		if hours := value(t, a, "hours_under_load", "n1"); hours < 1.0/3600 || hours > 10.0/3600 {
			t.Errorf("hours_under_load is %g after two seconds", hours)
		}
		if got := value(t, a, "failed_stressors", "n1"); got != 0 {
			t.Errorf("failed_stressors is %g", got)
		}
		for _, stressor := range []string{"cpu", "matrix"} {
			if got := value(t, a, "bogo_ops_rate", "n1", "stressor", stressor); got <= 0 {
				t.Errorf("bogo_ops_rate of %s is %g", stressor, got)
			}
		}
	})
	t.Run("bad_method", func(t *testing.T) {
		b := newBench(t, "host_burn", evidence.ScopeNode, "1s", []string{"n1"}, strings.Replace(params, "loop", "nosuch", 1))
		wantClasses(t, b.drive(t.Context()), evidence.ClassExit)
	})
}

// injectWhen breaks node n2 once ready says so, undoes it after open, and
// leaves faults.jsonl as the runner does.
func (b *osBench) injectWhen(ready func() bool, open time.Duration, inject, undo func() error) (wait func()) {
	b.faults = make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var events []evidence.FaultEvent
		say := func(event string) {
			now := time.Now()
			events = append(events, evidence.FaultEvent{Fault: 0, Event: event, Time: now, At: now.Sub(b.view.Attempt.Start).Seconds(), Node: "n2"})
		}
		if err := b.Wait(b.t.Context(), "the probe to work", 20*time.Millisecond, func(context.Context) (bool, error) { return ready(), nil }); err != nil {
			b.t.Error(err)
		}
		say("inject_start")
		if err := inject(); err != nil {
			b.t.Error(err)
		}
		say("injected")
		<-time.After(open)
		say("undo_start")
		if err := undo(); err != nil {
			b.t.Error(err)
		}
		say("undone")
		var text []byte
		for _, e := range events {
			line, err := evidence.EncodeLine(e)
			if err != nil {
				b.t.Error(err)
			}
			text = append(text, line...)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "faults.jsonl"), text, 0o644); err != nil {
			b.t.Error(err)
		}
		close(b.faults)
	}()
	return func() { <-done }
}

func TestRealFailover(t *testing.T) {
	build := func(t *testing.T, read string) (*osBench, string) {
		dir := t.TempDir()
		b := newBench(t, "failover", evidence.ScopeFleet, "20s", []string{"n1", "n2"}, fmt.Sprintf(`{
			"probe": {"period": "50ms", "timeout": "5s",
				"write": ["sh", "-c", "test ! -e $0/down && echo $1 >> $0/log", %q, "{record}"],
				"read": ["sh", "-c", %q, %q]},
			"settle": "200ms", "accepted": ["uname", "-srm"]}`, dir, read, dir))
		b.view.Test.Faults = []evidence.Fault{{Kind: "command", Nodes: []string{"n2"}, After: evidence.Duration(700 * time.Millisecond)}}
		return b, dir
	}
	breakIt := func(b *osBench, dir string) func() {
		down := filepath.Join(dir, "down")
		records := func() bool {
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			return err == nil && bytes.Count(log, []byte("\n")) >= 12
		}
		return b.injectWhen(records, 500*time.Millisecond,
			func() error { return os.WriteFile(down, nil, 0o644) },
			func() error { return os.Remove(down) })
	}
	t.Run("good_outage", func(t *testing.T) {
		b, dir := build(t, "cat $0/log")
		wait := breakIt(b, dir)
		a := b.drive(t.Context())
		wait()
		wantClasses(t, a)
		if got := value(t, a, "outage", "fleet"); got < 0.4 || got > 3 {
			t.Errorf("outage is %g s after half a second without service", got)
		}
		if got := value(t, a, "failed_probes", "fleet"); got < 2 {
			t.Errorf("failed_probes is %g", got)
		}
		if got := value(t, a, "return_to_service", "fleet"); got < 0.4 || got > 3 {
			t.Errorf("return_to_service is %g s", got)
		}
		for _, metric := range []string{"lost_records", "wrong_records", "mismatches"} {
			if got := value(t, a, metric, "fleet"); got != 0 {
				t.Errorf("%s is %g", metric, got)
			}
		}
	})
	t.Run("loses_and_mangles", func(t *testing.T) {
		b, dir := build(t, "test ! -e $0/log || sed -e '3d' -e '4s/-/x/' $0/log")
		wait := breakIt(b, dir)
		a := b.drive(t.Context())
		wait()
		if got := value(t, a, "lost_records", "fleet"); got != 2 {
			t.Errorf("lost_records is %g, want 2", got)
		}
		if got := value(t, a, "wrong_records", "fleet"); got != 1 {
			t.Errorf("wrong_records is %g, want 1", got)
		}
	})
}
