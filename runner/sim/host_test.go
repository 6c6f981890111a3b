package sim_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// bench is a rack of three nodes with seed 1 under a virtual clock.
type bench struct {
	t *testing.T
	*rack.Rack
	x runner.Executor
}

func onRack(t *testing.T, f func(b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: []string{"gpu001", "gpu002", "gpu003"}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		f(bench{t, r, x})
	})
}

type output struct {
	evidence.Exit
	stdout, stderr string
}

func (b bench) run(node string, argv ...string) output {
	b.t.Helper()
	var out, errs bytes.Buffer
	exit, err := b.x.Exec(b.t.Context(), evidence.Task{Node: node, Argv: argv}, &out, &errs)
	if err != nil {
		b.t.Fatal(err)
	}
	return output{exit, out.String(), errs.String()}
}

// says checks the status and both streams of a command by value.
func (b bench) says(code int, stdout, stderr, node string, argv ...string) {
	b.t.Helper()
	got := b.run(node, argv...)
	if got.Code == nil || *got.Code != code || got.stdout != stdout || got.stderr != stderr {
		b.t.Errorf("%q: class %s (%s), stdout\n%s\nstderr\n%s\nwant %d, stdout\n%s\nstderr\n%s", argv, got.Class, got.Detail, got.stdout, got.stderr, code, stdout, stderr)
	}
}

func TestFilesOfTheSharedFilesystem(t *testing.T) {
	onRack(t, func(b bench) {
		if err := b.Inject(rack.Fault{Kind: rack.KindMissingMount, Node: "gpu003"}); err != nil {
			t.Fatal(err)
		}
		// Beside each other on two nodes that have it, and alone on the third.
		b.says(0, "", "", "gpu001", "mkdir", "-p", "--", "/mnt/scratch/a/b")
		b.says(1, "", "mkdir: cannot create directory '/mnt/scratch/a': File exists\n", "gpu002", "mkdir", "/mnt/scratch/a")
		b.says(0, "", "", "gpu003", "mkdir", "/mnt/scratch/a")
		b.says(1, "", "mkdir: cannot create directory '/mnt/scratch/x/y': No such file or directory\n", "gpu003", "mkdir", "/mnt/scratch/x/y")
		b.says(0, "/mnt/scratch\n/mnt/scratch/a\n/mnt/scratch/a/b\n", "", "gpu002", "find", "/mnt/scratch")
		b.says(0, "/mnt/scratch\n/mnt/scratch/a\n", "", "gpu003", "find", "/mnt/scratch", "-type", "d")
		b.says(1, "", "rm: cannot remove '/mnt/scratch': Device or resource busy\n", "gpu001", "rm", "/mnt/scratch")
	})
}

func TestFind(t *testing.T) {
	clean := []string{"find", "/tmp/w", "-depth", "(", "(", "-type", "f", "-name", "data.*", "-o", "-type", "d", "-empty", ")", "-delete", ")", "-o", "-print"}
	onRack(t, func(b bench) {
		b.says(1, "", "find: '/tmp/w': No such file or directory\n", "gpu001", clean...)
		b.says(0, "", "", "gpu001", "mkdir", "-p", "/tmp/w/sub.x", "/tmp/w/sub")
		for _, name := range []string{"data.0", "data.10", "keep", "sub/data.1"} {
			b.says(0, "", "", "gpu001", "tee", "/tmp/w/"+name)
		}
		b.says(0, "/tmp/w\n/tmp/w/data.0\n/tmp/w/data.10\n/tmp/w/keep\n/tmp/w/sub\n/tmp/w/sub/data.1\n/tmp/w/sub.x\n", "", "gpu001", "find", "/tmp/w")
		// What is not the check's own stays, and is named.
		b.says(0, "/tmp/w/keep\n/tmp/w\n", "", "gpu001", clean...)
		b.says(0, "", "", "gpu001", "rm", "/tmp/w/keep")
		b.says(0, "", "", "gpu001", clean...)
		b.says(1, "", "find: '/tmp/w': No such file or directory\n", "gpu001", "find", "/tmp/w")
		for _, argv := range [][]string{
			{"find"}, {"find", "-type", "f"}, {"find", "/tmp", "-exec", "rm"}, {"find", "/tmp", "("}, {"find", "/tmp", "(", "-empty"},
			{"find", "/tmp", ")"}, {"find", "/tmp", "-name", "[a"}, {"find", "/tmp", "-o"}, {"find", "/tmp", "-type", "l"},
		} {
			if o := b.run("gpu001", argv...); o.Code == nil || *o.Code != 2 || o.stdout != "" {
				t.Errorf("%q: class %s, stdout %q", argv, o.Class, o.stdout)
			}
		}
	})
}
