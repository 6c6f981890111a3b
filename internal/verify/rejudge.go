package verify

import (
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/thresholds"
)

// rejudge is step 6: the plan and what was measured again give the enclosed
// verdict, and each gate was decided as the judge decides it. It returns the
// verdict that it derived, or nil.
func rejudge(c *content, results []evidence.CellResult, catalog checks.Catalog) (*evidence.Verdict, attest.StepResult) {
	s := newStep(stepVerdict)
	if c.verdictErr != nil {
		s.fail(attest.Failure{Code: CodeVerdict, Path: evidence.VerdictPath, Message: "the verdict cannot be read: " + c.verdictErr.Error()})
	}
	if c.plan == nil || results == nil {
		s.leave("there is no plan or nothing was measured again, so there is nothing to judge")
		return nil, s.result("")
	}
	verdict := evidence.NewDerived(nil, thresholds.Judge(c.plan, results)).Verdict
	unknown := unknownChecks(c.plan, catalog)
	for _, u := range unknown {
		s.leave("%s", u)
	}
	if c.newer {
		s.leave("the bundle was written by a newer minor version of the schema than this build knows")
	}
	onlyShow := len(unknown) > 0 || c.newer
	if c.verdict != nil {
		compareVerdicts(c, verdict, s, onlyShow)
	}
	if !onlyShow {
		compareGates(c, results, s)
	}
	if onlyShow {
		return nil, s.result("")
	}
	return &verdict, s.result(fmt.Sprintf("judging again gives the enclosed verdict: %s, %s", verdict.Outcome, evidence.Count(len(verdict.Findings), "finding")))
}

func compareVerdicts(c *content, verdict evidence.Verdict, s *step, onlyShow bool) {
	verdict.Minor = c.verdict.Minor
	doc, err := evidence.Encode(verdict)
	if err != nil {
		s.fail(attest.Failure{Code: CodeVerdict, Path: evidence.VerdictPath, Message: "the derived verdict cannot be written: " + err.Error()})
		return
	}
	differences, err := diffDocuments(doc, c.verdictBytes)
	if err != nil {
		s.fail(attest.Failure{Code: CodeVerdict, Path: evidence.VerdictPath, Message: err.Error()})
		return
	}
	for _, d := range differences {
		if onlyShow {
			s.leave("%s: sealed %s, judged now %s", d.Path, d.Got, d.Want)
			continue
		}
		s.fail(attest.Failure{
			Code: CodeVerdictDiffers, Path: evidence.VerdictPath + "#" + d.Path, Message: d.Path + " is not what judging the raw files again gives",
			Expected: d.Want, Actual: d.Got, Next: "the enclosed verdict does not follow from the evidence: do not accept it",
		})
	}
}

// maxGates bounds the decisions that are derived again: each means judging a
// phase, and a run decides a gate once, and once more each time that it was
// resumed with cells left.
const maxGates = 1000

// compareGates derives each gate of the journal again from what had been
// measured when it was decided.
func compareGates(c *content, results []evidence.CellResult, s *step) {
	gates := 0
	for i, r := range c.records {
		if r.Event != evidence.EventGate {
			continue
		}
		path := fmt.Sprintf("%s:%d", evidence.JournalPath, i+1)
		if r.Gate == nil || r.Gate.Phase != r.Phase {
			s.fail(attest.Failure{Code: CodeGateDiffers, Path: path, Message: "this line does not decide the gate of the phase that it names", Expected: r.Phase, Next: resignedNext})
			continue
		}
		if gates++; gates > maxGates {
			s.fail(attest.Failure{
				Code: CodeGateDiffers, Path: path, Message: "the journal decides more gates than are derived again",
				Expected: fmt.Sprintf("at most %d", maxGates), Next: resignedNext,
			})
			return
		}
		if !slices.ContainsFunc(c.plan.Phases, func(p evidence.Phase) bool { return p.Name == r.Gate.Phase }) {
			s.fail(attest.Failure{Code: CodeGateDiffers, Path: path, Message: "the plan has no phase " + r.Gate.Phase, Next: resignedNext})
			continue
		}
		differences, err := diffValues(thresholds.Gate(c.plan, resultsBefore(c.records[:i], results), r.Gate.Phase), r.Gate)
		if err != nil {
			s.fail(attest.Failure{Code: CodeGateDiffers, Path: path, Message: err.Error()})
		}
		for _, d := range differences {
			s.fail(attest.Failure{
				Code: CodeGateDiffers, Path: path, Message: "the gate of phase " + r.Gate.Phase + " was decided otherwise than the judge decides it: " + d.Path,
				Expected: d.Want, Actual: d.Got, Next: "cells may have been run, or left out, against the rule of the plan",
			})
		}
	}
}

// resultsBefore is what results were when records had been written: attempts
// that had ended and skips that had been decided, and nothing since.
func resultsBefore(records []evidence.Record, results []evidence.CellResult) []evidence.CellResult {
	ended := make(map[attemptKey]bool)
	skipped := make(map[string]*evidence.Problem)
	for _, r := range records {
		switch r.Event {
		case evidence.EventAttemptEnd:
			ended[attemptKey{r.Cell, r.Attempt}] = true
		case evidence.EventSkip:
			skipped[r.Cell] = r.Problem
		}
	}
	before := make([]evidence.CellResult, 0, len(results))
	for _, result := range results {
		was := evidence.CellResult{Cell: result.Cell}
		for _, a := range result.Attempts {
			if ended[attemptKey{result.Cell.ID, a.Number}] {
				was.Attempts = append(was.Attempts, a)
			}
		}
		if len(was.Attempts) == 0 {
			was.Skipped = skipped[result.Cell.ID]
			if was.Skipped == nil {
				was.Skipped = &evidence.Problem{Class: evidence.ClassNotRun, Detail: "not run"}
			}
		}
		before = append(before, was)
	}
	return before
}
