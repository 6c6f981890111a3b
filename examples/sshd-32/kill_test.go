package sshd32_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/killtest"
)

var kills = flag.Int("kills", 1, "how often TestRunnerKilled kills the runner; each takes two minutes on two cores")

// TestRunnerKilled kills the runner of the whole example at random moments,
// resumes it, and wants what the undisturbed run found. The first kill falls
// into the time in which the service is down.
func TestRunnerKilled(t *testing.T) {
	undisturbed := readVerdict(t, shared.run)
	length := runLength(t, shared.run)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range *kills {
		// Not at the very end: a run that is complete has nothing to resume.
		trigger := killAfter(time.Duration(random.Int64N(int64(length * 8 / 10))))
		if i == 0 {
			trigger = killWhen(evidence.EventFaultOpen)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			killed := trigger(t, runs)
			plans, err := filepath.Glob(filepath.Join(runs, "*", "run", "journal.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if len(plans) == 0 {
				t.Fatalf("killed before the run had a journal\n%s", killed)
			}
			directory := filepath.Dir(filepath.Dir(plans[0]))
			running := killtest.Running(t, directory)

			got := shared.rackproof(t.Context(), "resume", directory, "--allow", "kills_service", "--key", filepath.Join(shared.dir, "key.key"))
			if got.code != 0 {
				t.Fatalf("resume: exit %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			verdict := readVerdict(t, directory)
			if verdict.Outcome != undisturbed.Outcome {
				t.Errorf("outcome %v, want %v", verdict.Outcome, undisturbed.Outcome)
			}
			if got, want := killtest.Findings(t, verdict), killtest.Findings(t, undisturbed); !slices.Equal(got, want) {
				t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			cuts := killtest.Cuts(verdict)
			for _, attempt := range running {
				if !slices.Contains(cuts, attempt) {
					t.Errorf("%s was running when the runner was killed, and is not among the cuts %q", attempt, cuts)
				}
			}
			if !shared.rack.ServiceAnswers(t.Context()) {
				t.Error("the service is still down")
			}
			// The undo of the fault started the service, and it is to go on.
			for _, process := range killtest.Left(t, directory, "redis-server") {
				t.Errorf("left: %s", process)
			}

			_, bundle, err := onlyRun(runs)
			if err != nil {
				t.Fatal(err)
			}
			// Beside the shared one: key files are named relative to a policy.
			policy := filepath.Join(shared.dir, fmt.Sprintf("lenient-%d.hcl", i))
			text, err := os.ReadFile(shared.trust)
			if err != nil {
				t.Fatal(err)
			}
			lenient := strings.Replace(string(text), "interrupted  = 0", "interrupted  = 100", 1)
			if err := os.WriteFile(policy, []byte(lenient), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := shared.rackproof(t.Context(), "verify", bundle, "--trust", policy); got.code != 0 {
				t.Errorf("verify: exit %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
		})
	}
}

// A killer runs the example and kills the runner; it returns what the runner
// had printed.
type killer func(t *testing.T, runs string) string

func killAfter(d time.Duration) killer {
	return func(t *testing.T, runs string) string {
		return killed(t, runs, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			return nil
		})
	}
}

func killWhen(event evidence.Event) killer {
	return func(t *testing.T, runs string) string {
		return killed(t, runs, func(ctx context.Context) error {
			for tick := time.Tick(20 * time.Millisecond); ; {
				select {
				case <-ctx.Done():
					return fmt.Errorf("the run ended without %s", event)
				case <-tick:
				}
				journals, err := filepath.Glob(filepath.Join(runs, "*", "run", "journal.jsonl"))
				if err != nil {
					return err
				}
				if len(journals) == 0 {
					continue
				}
				text, err := os.ReadFile(journals[0])
				if err != nil {
					return err
				}
				if bytes.Contains(text, []byte(`"event":"`+string(event)+`"`)) {
					return nil
				}
			}
		})
	}
}

// killed starts the example and kills it when until returns.
func killed(t *testing.T, runs string, until func(context.Context) error) string {
	t.Helper()
	var output bytes.Buffer
	command := exec.Command(shared.program, shared.runArguments(shared.rack, runs)...)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, ended := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		defer ended()
		_ = command.Wait()
	}()
	err := until(ctx)
	if kill := command.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		t.Fatal(kill)
	}
	<-waited
	if err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	return output.String()
}

func runLength(t *testing.T, run string) time.Duration {
	t.Helper()
	records := killtest.Journal(t, run)
	return records[len(records)-1].Time.Sub(records[0].Time)
}
