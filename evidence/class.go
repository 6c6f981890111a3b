package evidence

import "fmt"

// Class says how one step, node or attempt ended. It is data in the journal;
// the table below is the only place that gives a class its outcome.
type Class string

// The classes. ClassOK is the only one that leaves the verdict to the
// measurements alone.
const (
	ClassOK Class = "ok"

	ClassDNS             Class = "unreachable-dns"
	ClassTCP             Class = "unreachable-tcp"
	ClassBanner          Class = "unreachable-banner"
	ClassKex             Class = "unreachable-kex"
	ClassBusy            Class = "refused-busy"
	ClassAuth            Class = "auth-failed"
	ClassNotSSH          Class = "not-ssh"
	ClassHostKeyMismatch Class = "hostkey-mismatch"
	ClassHostKeyUnknown  Class = "hostkey-unknown"

	ClassLost           Class = "lost"
	ClassInterrupted    Class = "interrupted"
	ClassSilent         Class = "silent"
	ClassTimeout        Class = "timeout"
	ClassSignal         Class = "signal"
	ClassOutputHeldOpen Class = "output-held-open"
	ClassLeaseHeld      Class = "node-lease-held"
	ClassCut            Class = "cut" // ended by our own death or by a stop

	ClassToolMissing Class = "tool-missing"
	ClassToolVersion Class = "tool-version"
	ClassSudoRefused Class = "sudo-refused"
	ClassArch        Class = "arch"

	ClassWrongFilesystem Class = "wrong-filesystem"
	ClassMountMissing    Class = "mount-missing"

	ClassExit         Class = "exit"
	ClassOutputCapped Class = "output-capped"
	ClassOutputCut    Class = "output-cut"
	ClassUnparsable   Class = "unparsable"
	ClassPanic        Class = "panic"            // a check of ours panicked
	ClassDamaged      Class = "evidence-damaged" // a file of the evidence is missing, or is not what was recorded
	ClassUnmeasured   Class = "unmeasured"       // the judge expected a measurement and found none, without a problem that explains it

	ClassNodeDiskFull Class = "node-disk-full"
	ClassClockOffset  Class = "clock-offset"
	ClassJournalFull  Class = "journal-full"

	ClassExcluded      Class = "excluded"
	ClassNotApplicable Class = "not-applicable"
	ClassNotRun        Class = "not-run"
)

type classRule struct {
	outcome Outcome
	proof   bool // Measure may prove a result in spite of it
	retry   bool // a connection fault that may be tried again
}

var classTable = map[Class]classRule{
	ClassOK: {outcome: Pass, proof: true},

	ClassDNS:             {outcome: Inconclusive, retry: true},
	ClassTCP:             {outcome: Inconclusive, retry: true},
	ClassBanner:          {outcome: Inconclusive, retry: true},
	ClassKex:             {outcome: Inconclusive, retry: true},
	ClassBusy:            {outcome: Inconclusive, retry: true},
	ClassAuth:            {outcome: Inconclusive},
	ClassNotSSH:          {outcome: Inconclusive},
	ClassHostKeyMismatch: {outcome: Inconclusive},
	ClassHostKeyUnknown:  {outcome: Inconclusive},

	ClassLost:           {outcome: Inconclusive},
	ClassInterrupted:    {outcome: Inconclusive},
	ClassSilent:         {outcome: Inconclusive},
	ClassTimeout:        {outcome: Inconclusive},
	ClassSignal:         {outcome: Inconclusive},
	ClassOutputHeldOpen: {outcome: Inconclusive},
	ClassLeaseHeld:      {outcome: Inconclusive},
	ClassCut:            {outcome: Inconclusive},

	ClassToolMissing: {outcome: Inconclusive},
	ClassToolVersion: {outcome: Inconclusive},
	ClassSudoRefused: {outcome: Inconclusive},
	ClassArch:        {outcome: Inconclusive},

	ClassWrongFilesystem: {outcome: Inconclusive},
	ClassMountMissing:    {outcome: Inconclusive},

	ClassExit:         {outcome: Error, proof: true},
	ClassOutputCapped: {outcome: Error, proof: true},
	ClassOutputCut:    {outcome: Error, proof: true},
	ClassUnparsable:   {outcome: Error},
	ClassPanic:        {outcome: Error},
	ClassDamaged:      {outcome: Error},
	ClassUnmeasured:   {outcome: Inconclusive},

	ClassNodeDiskFull: {outcome: Inconclusive},
	ClassClockOffset:  {outcome: Inconclusive},
	ClassJournalFull:  {outcome: Inconclusive},

	ClassExcluded:      {outcome: Inconclusive},
	ClassNotApplicable: {outcome: Inconclusive},
	ClassNotRun:        {outcome: Inconclusive},
}

// Known reports whether c is one of the classes of this build.
func (c Class) Known() bool { _, ok := classTable[c]; return ok }

// Outcome is the best outcome that what c hit can have. A class that this
// build does not know is Inconclusive.
func (c Class) Outcome() Outcome {
	rule, ok := classTable[c]
	if !ok {
		return Inconclusive
	}
	return rule.outcome
}

// ProvedByMeasure reports whether measurements may stand although a step
// ended with c: a tool may exit 1 and still have printed a whole result.
func (c Class) ProvedByMeasure() bool { return classTable[c].proof }

// Retryable reports whether c is a connection fault before anything was
// started, so that connecting again is safe.
func (c Class) Retryable() bool { return classTable[c].retry }

// A Problem is a fault of one step on one node, found by an executor, the
// runner or a check. Node is empty when it hits the whole cell.
type Problem struct {
	Node   string `json:"node,omitempty"`
	Step   string `json:"step,omitempty"`
	Class  Class  `json:"class"`
	Detail string `json:"detail"`
}

// Error renders the problem in one line: node, step, class, detail.
func (p *Problem) Error() string {
	where := p.Node
	if p.Step != "" {
		if where != "" {
			where += ": "
		}
		where += p.Step
	}
	if where != "" {
		where += ": "
	}
	return fmt.Sprintf("%s%s: %s", where, p.Class, p.Detail)
}

// Problems collects every *Problem inside err, through joined errors. Any
// other error becomes one unparsable problem of the whole cell.
func Problems(err error) []Problem {
	switch e := err.(type) {
	case nil:
		return nil
	case *Problem:
		return []Problem{*e}
	case interface{ Unwrap() []error }:
		var all []Problem
		for _, inner := range e.Unwrap() {
			all = append(all, Problems(inner)...)
		}
		return all
	}
	return []Problem{{Class: ClassUnparsable, Detail: err.Error()}}
}
