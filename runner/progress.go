package runner

import (
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// ProgressKind says what a Progress tells.
type ProgressKind string

// The kinds of progress, and the fields that each fills beside Time.
const (
	ProgressNode       ProgressKind = "node"        // Node; Problem where it cannot be used
	ProgressPhaseStart ProgressKind = "phase_start" // Phase, Pending
	ProgressPhaseEnd   ProgressKind = "phase_end"   // Phase
	ProgressCellStart  ProgressKind = "cell_start"  // Phase, Cell, Attempt, Attempts
	ProgressCellEnd    ProgressKind = "cell_end"    // Phase, Cell, Attempt, Attempts, Outcome, Problem, Cut
	ProgressSkip       ProgressKind = "skip"        // Phase, Cell, Outcome, Problem
	ProgressGate       ProgressKind = "gate"        // Phase, Gate, OnFail
	ProgressFault      ProgressKind = "fault"       // Cell, Attempt, Node, Fault, FaultEvent, Problem
	ProgressWaiting    ProgressKind = "waiting"     // Running: what a soft stop still waits for
	ProgressStop       ProgressKind = "stop"        // Reason
)

// Progress is one thing that happened in a run, for the terminal. Evidence is
// in the journal alone.
type Progress struct {
	Kind ProgressKind
	Time time.Time

	Phase    string
	Cell     string
	Attempt  int // from 1
	Attempts int // at most so many, retries included
	Node     string
	Outcome  evidence.Outcome // of the cell by itself
	Problem  *evidence.Problem
	Cut      bool

	Gate       *evidence.GateResult
	OnFail     string // what the gate does when it is not met
	Fault      *evidence.Fault
	FaultEvent string // as in evidence.FaultEvent

	Running []string // ids of the cells that run now
	Pending int      // cells of the phase that are to be run
	Reason  string
}

func (r *run) emit(p Progress) {
	p.Time = time.Now()
	r.events <- p
}
