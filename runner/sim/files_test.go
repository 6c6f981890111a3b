package sim_test

import (
	"testing"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestFilesOfTheSharedFilesystem(t *testing.T) {
	onHosts(t, func(b bench) {
		b.breaks(rack.Fault{Kind: rack.KindMissingMount, Node: "gpu003"})
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

func TestWrittenFiles(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "", "", "gpu001", "tee", "/tmp/new")
		b.says(1, "", "mkdir: cannot create directory '/tmp/new': File exists\n", "gpu001", "mkdir", "-p", "/tmp/new")
		b.says(1, "", "tee: /tmp: Is a directory\n", "gpu001", "tee", "/tmp")
		b.says(1, "", "tee: /nowhere/new: No such file or directory\n", "gpu001", "tee", "/nowhere/new")
		b.says(1, "", "tee: /proc/stat: Permission denied\n", "gpu001", "tee", "/proc/stat")
		b.says(1, "", "cat: /proc: Is a directory\n", "gpu001", "cat", "/proc")
		// One that was laid out has a size, and nobody kept its bytes.
		b.says(1, "", "cat: /tmp/data.0: File too large\n", "gpu001", "env", "cat", layOut(b, "/tmp"))
	})
}

// layOut makes fio lay a file out in dir, and gives its name.
func layOut(b bench, dir string) string {
	b.t.Helper()
	argv := []string{"fio", "--name=x", "--directory=" + dir, "--filename_format=data.$jobnum", "--size=1g", "--create_only=1", "--output-format=json"}
	if got := b.run("gpu001", argv...); got.Class != evidence.ClassOK {
		b.t.Fatalf("class %s (%s), stderr %q", got.Class, got.Detail, got.stderr)
	}
	return dir + "/data.0"
}

// A relative name lies below the home of who logs in.
func TestRelativeNames(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		run("mkdir", "-p", "a/b").want(t, 0, "")
		run("tee", "a/b/c").want(t, 0, "")
		run("find", "/root/a", "-type", "f").want(t, 0, "/root/a/b/c\n")
		run("mkdir", "../x").want(t, 0, "")
		run("mkdir", "-p", "/x").want(t, 0, "")
	})
}
