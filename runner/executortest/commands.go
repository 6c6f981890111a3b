package executortest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A Behaviour is what a command of the suite does. How a node is made to do it
// is the harness's matter.
type Behaviour string

// The behaviours. Those with arguments say which.
const (
	DoesNothing       Behaviour = "does nothing"             // ends with 0 and does not read its input
	Exits             Behaviour = "exits"                    // with the status that the argument says
	Dies              Behaviour = "dies"                     // by the signal that the argument names
	PrintsLines       Behaviour = "prints lines"             // 500 on each stream, "out N" and "err N", then "no newline" and "none here"
	Copies            Behaviour = "copies"                   // its input to its output
	Counts            Behaviour = "counts"                   // prints how many bytes of input it got
	Hashes            Behaviour = "hashes"                   // prints the SHA-256 of its input
	Floods            Behaviour = "floods"                   // 32 MiB of "a" on standard error, then of "b" on standard output
	PrintsMegabyte    Behaviour = "prints a megabyte"        // 1,000,000 zero bytes, and "small" on standard error
	PrintsWords       Behaviour = "prints its words"         // each argument in hex, one a line
	PrintsEnvironment Behaviour = "prints its environment"   // the named variables with "|" between, then "no terminal" if it has none
	TakesTurn         Behaviour = "takes its turn"           // prints "start N", a fifth of a second later "end N", and exits with N
	Sleeps            Behaviour = "sleeps"                   // until it is ended
	NeverStops        Behaviour = "never stops"              // printing
	FallsSilent       Behaviour = "falls silent"             // prints 1 to 5, each 0.3 s, and nothing more
	Complains         Behaviour = "complains"                // prints them on standard error, and ends
	Touches           Behaviour = "touches"                  // leaves a trace by the name that the argument gives
	FillsGroup        Behaviour = "fills its group"          // with children, grandchildren and a process whose parent has gone; prints "up" when all are there, and sleeps
	IgnoresTERM       Behaviour = "ignores TERM"             // with a child; prints "up"
	LeavesGroup       Behaviour = "leaves its group"         // ignores TERM, with children in sessions of their own; prints "up"
	HoldsOutput       Behaviour = "holds its output open"    // prints "hi" and exits with 3, and a child of it has the output
	LeavesBehind      Behaviour = "leaves processes behind"  // which do not hold the output; prints "hi" and exits with 0
	LeavesStubborn    Behaviour = "leaves one that ignores"  // TERM, and so does it; otherwise as LeavesBehind
	IsOnPath          Behaviour = "is found by its name"     // in the usual PATH
	CannotStart       Behaviour = "cannot start"             // though there is a program of its name
	IsOfThisArch      Behaviour = "is of this architecture"  // ends with 0
	IsOfOtherArch     Behaviour = "is of other architecture" // that the node does not have
)

// Commands are the commands of the suite on the nodes under test.
type Commands interface {
	// Argv is a command that behaves so.
	Argv(t *testing.T, b Behaviour, args ...string) []string
	// Missing are commands of which the node has no program.
	Missing(t *testing.T) [][]string
	// Touched reports whether a command that touches name has run.
	Touched(name string) bool
	// Left lists what still runs of the command that bears mark, and Watching
	// what supervises it.
	Left(mark string) []string
	Watching(mark string) []string
}

// Scripts are the commands of a node that runs real programs on this machine,
// with a POSIX sh.
type Scripts struct{}

var scripts = map[Behaviour][]string{
	DoesNothing: {"true"},
	Copies:      {"cat"},
	Counts:      {"wc", "-c"},
	Hashes:      {"sha256sum"},
	Sleeps:      {"sleep", "1000"},
	Touches:     {"touch"},
	IsOnPath:    {"sort"},

	Exits:          {"sh", "-c", `exit "$1"`, "x"},
	Dies:           {"sh", "-c", `kill "-$1" $$`, "x"},
	PrintsLines:    {"sh", "-c", "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf 'no newline'; printf 'none here' >&2"},
	Floods:         {"sh", "-c", "head -c 33554432 /dev/zero | tr '\\000' 'a' | tee /dev/stderr | sha256sum - | cut -c1-64 >/dev/null; head -c 33554432 /dev/zero | tr '\\000' b"},
	PrintsMegabyte: {"sh", "-c", "head -c 1000000 /dev/zero; echo small >&2"},
	PrintsWords:    {"sh", "-c", `for w; do printf '%s' "$w" | od -An -v -tx1 | tr -d ' \n'; echo; done`, "x"},
	PrintsEnvironment: {"sh", "-c", `b=; for n; do eval "v=\$$n"; printf '%s%s' "$b" "$v"; b='|'; done; echo; ` +
		`test -t 0 || test -t 1 || test -t 2 || echo no terminal`, "x"},
	TakesTurn:   {"sh", "-c", `echo start $1; sleep 0.2; echo end $1; exit $1`, "x"},
	NeverStops:  {"sh", "-c", "yes; sleep 1000"},
	FallsSilent: {"sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.3; done; sleep 1000"},
	Complains:   {"sh", "-c", "for i in 1 2 3 4 5; do echo $i >&2; sleep 0.3; done"},

	FillsGroup:     {"sh", "-c", `sleep 1000 & (sleep 1001 & sleep 1002) & ( (sleep 1003 &) & ) ; echo up; exec sleep 1004`},
	IgnoresTERM:    {"sh", "-c", `trap "" TERM; sleep 1000 & echo up; while :; do sleep 0.2; done`},
	LeavesGroup:    {"sh", "-c", `trap "" TERM; setsid sleep 1000 & (setsid sh -c "sleep 1001; :" &) ; echo up; while :; do sleep 0.2; done`},
	HoldsOutput:    {"sh", "-c", "sleep 1000 & echo hi; exit 3"},
	LeavesBehind:   {"sh", "-c", "sleep 1000 >/dev/null 2>&1 & (sleep 1001 >/dev/null 2>&1 &) ; echo hi"},
	LeavesStubborn: {"sh", "-c", "trap '' TERM; sleep 1000 >/dev/null 2>&1 & echo hi"},
}

// Argv is a script, or a program that is made for it.
func (Scripts) Argv(t *testing.T, b Behaviour, args ...string) []string {
	t.Helper()
	switch b {
	case CannotStart:
		return []string{program(t, []byte("#!/no/such/interpreter\n"), 0o755)}
	case IsOfThisArch, IsOfOtherArch:
		text, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if b == IsOfOtherArch {
			// ELF's e_machine: 0x00f7 is BPF, which nothing runs as a program.
			text[18] = 0xf7
		}
		return []string{program(t, text, 0o755), "-test.run=^$"}
	}
	script, ok := scripts[b]
	if !ok {
		t.Fatalf("there is no script that %s", b)
	}
	return append(script[:len(script):len(script)], args...)
}

func program(t *testing.T, text []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, bytes.Clone(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// Missing are names that no program has, a file that is none, a directory, and
// words of the shell's own.
func (Scripts) Missing(t *testing.T) [][]string {
	t.Helper()
	plain := program(t, []byte("text"), 0o644)
	return [][]string{{"no-such-tool-here", "-x"}, {"/no/such/tool"}, {plain}, {filepath.Dir(plain)}, {"export"}, {"rp_say"}}
}

// Touched looks for the file.
func (Scripts) Touched(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, os.ErrNotExist)
}

// Left lists processes of this machine.
func (Scripts) Left(mark string) []string { return Marked(mark) }

// Watching lists supervisors on this machine.
func (Scripts) Watching(mark string) []string { return Watching(mark) }
