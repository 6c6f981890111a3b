// Package killtest looks at runs whose runner was killed, for the tests that
// kill the examples and resume them. Where there is nothing to look at, it
// fails the test.
package killtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// Journal reads the journal in a run directory, but for a last line that the
// kill tore.
func Journal(t testing.TB, run string) []evidence.Record {
	t.Helper()
	file, err := os.Open(filepath.Join(run, evidence.JournalPath))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, _, err := evidence.ReadJournal(file)
	var damage *evidence.JournalError
	if err != nil && !(errors.As(err, &damage) && damage.Torn) {
		t.Fatal(err)
	}
	if len(records) == 0 {
		t.Fatalf("%s: the journal is empty", run)
	}
	return records
}

// Running names the attempts that had started and not ended when the runner
// was killed. One whose attempt.json was written had ended, and lacks but its
// line in the journal.
func Running(t testing.TB, run string) []string {
	t.Helper()
	var running []string
	for _, r := range Journal(t, run) {
		attempt := attemptName(r.Cell, r.Attempt)
		switch r.Event {
		case evidence.EventAttemptStart:
			if _, err := os.Stat(filepath.Join(run, evidence.AttemptPath(r.Cell, r.Attempt), "attempt.json")); err != nil {
				running = append(running, attempt)
			}
		case evidence.EventAttemptEnd:
			running = slices.DeleteFunc(running, func(a string) bool { return a == attempt })
		}
	}
	return running
}

// Cuts names the attempts that a verdict lists as cut, in the words of
// Running.
func Cuts(v evidence.Verdict) []string {
	var cuts []string
	for _, c := range v.Coverage.Cuts {
		cuts = append(cuts, attemptName(c.Cell, c.Attempt))
	}
	return cuts
}

func attemptName(cell string, attempt int) string { return fmt.Sprintf("%s#%d", cell, attempt) }

// Findings are a verdict's findings without what differs from run to run: the
// numbers and where they were read. There must be some: two runs that found
// nothing would look alike.
func Findings(t testing.TB, v evidence.Verdict) []string {
	t.Helper()
	if len(v.Findings) == 0 {
		t.Fatal("the verdict has no findings")
	}
	var lines []string
	for _, f := range v.Findings {
		lines = append(lines, fmt.Sprintf("%s %s %s: %v %s", f.Test, f.Threshold, f.Subject, f.Outcome, f.Reason))
	}
	return lines
}

// Left lists the processes of this machine that carry the run's mark, but for
// those whose command line begins with one of stays.
func Left(t testing.TB, run string, stays ...string) []string {
	t.Helper()
	// The journal's first record names the run, whatever its folder is called.
	mark := []byte("RACKPROOF_MARK=" + Journal(t, run)[0].Run)
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	var left []string
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil {
			continue // it ended, or it is not ours
		}
		looked++
		if !bytes.Contains(environment, mark) {
			continue
		}
		// A process that ends only now was left, too.
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if !slices.ContainsFunc(stays, func(s string) bool { return bytes.HasPrefix(line, []byte(s)) }) {
			left = append(left, fmt.Sprintf("%s: %q", filepath.Dir(path), line))
		}
	}
	if looked == 0 {
		t.Fatal("no process could be looked at, not even this one")
	}
	return left
}
