package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runner"
)

// terminal is a process at a terminal whose user types the given lines.
func terminal(t *testing.T, args []string, typed ...string) (p *Process, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &Process{
		Context: t.Context(), Args: args, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		StdinTTY: true, StderrTTY: true, Width: 80,
		ReadSecret: func() ([]byte, error) {
			if len(typed) == 0 {
				return nil, errors.New("nobody types")
			}
			line := typed[0]
			typed = typed[1:]
			return []byte(line), nil
		},
	}, stdout, stderr
}

func TestPassphrasePrompt(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		typed []string
		exit  Exit
		says  string
	}{
		{"typed twice", nil, []string{"horse", "horse"}, ExitOK, "Once more: "},
		{"typed differently", nil, []string{"horse", "house"}, ExitError, "the two passphrases differ"},
		{"empty", nil, []string{""}, ExitError, "the passphrase is empty"},
		{"nobody types", nil, nil, ExitError, "nobody types"},
		{"no input", []string{"--no-input"}, []string{"horse", "horse"}, ExitUsage, "--passphrase env://NAME"},
	} {
		prefix := filepath.Join(t.TempDir(), "op")
		p, _, stderr := terminal(t, append([]string{"keygen", "--encrypt", "--out", prefix}, c.flags...), c.typed...)
		if got := Main(p); Exit(got) != c.exit || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: exit %d, stderr %q", c.name, got, stderr)
		}
		private, err := os.ReadFile(prefix + ".key")
		if (err == nil) != (c.exit == ExitOK) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		if _, err := attest.LoadSigner(private, func() ([]byte, error) { return []byte(c.typed[0]), nil }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if info, err := os.Stat(prefix + ".key"); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", c.name, info.Mode(), err)
		}
	}
}

func TestReachIsFilledFromTheProcess(t *testing.T) {
	home := t.TempDir()
	config := filepath.Join(home, ".ssh", "config")
	if err := errors.Join(os.Mkdir(filepath.Dir(config), 0o700), os.WriteFile(config, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ssh := runner.Kind{Name: "ssh", Params: []evidence.Param{{Name: "user"}, {Name: "ssh_config"}, {Name: "agent"}}}
	for _, c := range []struct {
		name    string
		kind    runner.Kind
		environ []string
		given   string
		want    map[string]any
	}{
		{"both", ssh, []string{"HOME=" + home, "SSH_AUTH_SOCK=/a"}, `{"user":"x"}`, map[string]any{"user": "x", "ssh_config": config, "agent": "/a"}},
		{"the runbook rules", ssh, []string{"HOME=" + home, "SSH_AUTH_SOCK=/a"}, `{"ssh_config":"/b","agent":"/c"}`, map[string]any{"ssh_config": "/b", "agent": "/c"}},
		{"null is absent", ssh, []string{"SSH_AUTH_SOCK=/a"}, `{"agent":null,"ssh_config":""}`, map[string]any{"agent": "/a", "ssh_config": ""}},
		{"nothing to fill", ssh, nil, `{}`, map[string]any{}},
		{"another kind", runner.Kind{Name: "local"}, []string{"HOME=" + home, "SSH_AUTH_SOCK=/a"}, ``, map[string]any{}},
	} {
		p := &Process{Environ: c.environ}
		raw, err := p.reach(c.kind, json.RawMessage(c.given))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestOnlyAPassExitsZero(t *testing.T) {
	for o := evidence.None - 1; o <= evidence.Fail+1; o++ {
		want := ExitInconclusive
		switch o {
		case evidence.Pass:
			want = ExitOK
		case evidence.Fail:
			want = ExitFail
		}
		if got := exitOfOutcome(o); got != want {
			t.Errorf("%s: exit %d, want %d", o, got, want)
		}
	}
}

// A fault that is still in effect never turns a fail into our own error, nor a
// pass into nothing.
func TestOpenFaultKeepsTheVerdictsCode(t *testing.T) {
	open := &runner.OpenFaultError{Faults: []string{"rate/n01.r1: command on n01"}}
	for outcome, want := range map[evidence.Outcome]Exit{
		evidence.Pass: ExitError, evidence.Fail: ExitFail, evidence.Error: ExitInconclusive, evidence.Inconclusive: ExitInconclusive,
	} {
		err := judgedError(&evidence.Plan{}, evidence.Verdict{Outcome: outcome}, "runs/x", nil, open)
		if exitOf(err) != want || !errors.Is(err, open) || !slices.Contains(hintsOf(err), "rackproof undo runs/x") {
			t.Errorf("%s: exit %d, %v, hints %q", outcome, exitOf(err), err, hintsOf(err))
		}
	}
}

// A sealed run is not opened again by a build that could not go on with it.
func TestSealStaysWhereTheChecksDiffer(t *testing.T) {
	opts := &resumeOptions{dir: t.TempDir()}
	for check, version := range map[string]int{"command": 1000, "no_such_check": 1} {
		plan := &evidence.Plan{Tests: []evidence.Test{{Name: "x", Check: check, CheckVersion: version}}}
		if err := mayGoOn(opts, plan); exitOf(err) != ExitError || !strings.Contains(err.Error(), check) {
			t.Errorf("%s: %v", check, err)
		}
	}
	if err := mayGoOn(opts, &evidence.Plan{}); err != nil {
		t.Error(err)
	}
}

func TestErrorsAreEscapedAndCarryTheirHints(t *testing.T) {
	var out bytes.Buffer
	printError(&out, errors.Join(fail(ExitUsage, errors.New("gpu\x1b[2J01"), "first"), hinted(errors.New("two\nlines"), "second")))
	want := "rackproof: error: gpu\\u001b[2J01\nrackproof: error: two\nrackproof: error: lines\nrackproof: hint: first\nrackproof: hint: second\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestExitTableIsComplete(t *testing.T) {
	seen := make(map[Exit]bool)
	for _, row := range exitTable {
		if seen[row.code] || row.meaning == "" || row.typical == "" {
			t.Errorf("%+v", row)
		}
		seen[row.code] = true
	}
	for _, code := range []Exit{ExitOK, ExitError, ExitUsage, ExitFail, ExitInconclusive, ExitUntrusted, ExitPolicy, ExitPartial, ExitInterrupt, ExitTerminate} {
		if !seen[code] {
			t.Errorf("exit %d is not in the table", code)
		}
	}
}

// Every command has a sentence, two examples, and a way to be wrong.
func TestEveryCommandIsExplained(t *testing.T) {
	p, _, _ := terminal(t, nil)
	for _, command := range newRoot(p).Commands() {
		if !command.Runnable() { // a topic
			continue
		}
		if command.Short == "" || len(strings.Split(strings.TrimSpace(command.Example), "\n")) < 2 {
			t.Errorf("%s: short %q, examples %q", command.Name(), command.Short, command.Example)
		}
	}
}
