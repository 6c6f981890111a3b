package runner

import (
	"sync"
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
	ProgressCellStart  ProgressKind = "cell_start"  // Phase, Cell, Attempt, Attempts, Pending
	ProgressCellEnd    ProgressKind = "cell_end"    // Phase, Cell, Attempt, Attempts, Outcome, Measured, Problem, Cut, Pending
	ProgressSkip       ProgressKind = "skip"        // Phase, Cell, Outcome, Problem, Pending
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
	Outcome  evidence.Outcome // of the cell by itself; never pass unless a threshold said so
	// Measured says that the cell was measured without a problem, and that
	// only thresholds over several cells can judge it. Outcome is then
	// inconclusive.
	Measured bool
	Problem  *evidence.Problem
	Cut      bool

	Gate       *evidence.GateResult
	OnFail     string // what the gate does when it is not met
	Fault      *evidence.Fault
	FaultEvent string // as in evidence.FaultEvent

	Running []string // ids of the cells that run now
	Pending int      // cells of the phase that are not done, those that run included
	Reason  string
}

// phaseCount counts the cells of each phase that are not done.
type phaseCount struct {
	mu   sync.Mutex
	left map[string]map[*cellState]bool
}

func newPhaseCount() *phaseCount { return &phaseCount{left: make(map[string]map[*cellState]bool)} }

func (p *phaseCount) begin(phase string, cells []*cellState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[phase] = make(map[*cellState]bool, len(cells))
	for _, c := range cells {
		p.left[phase][c] = true
	}
}

func (p *phaseCount) over(c *cellState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left[c.test.Phase], c)
}

func (p *phaseCount) of(phase string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left[phase])
}

func (r *run) emit(p Progress) {
	p.Time = time.Now()
	r.events <- p
}
