package evidence

import "time"

// Event is the kind of a journal record.
type Event string

// The events. Every transition is appended and synced before it is acted on.
const (
	EventOpen         Event = "open"          // a run begins: Media, Plan, Tool, Run
	EventResume       Event = "resume"        // another process goes on: Tool, Torn
	EventReopen       Event = "reopen"        // a sealed run goes on: Seal is the digest of the manifest that was set aside
	EventNode         Event = "node"          // a node was identified or could not be: Node, Identity
	EventPhaseStart   Event = "phase_start"   // Phase
	EventPhaseEnd     Event = "phase_end"     // Phase
	EventCapture      Event = "capture"       // Phase, Node, Path, Files, Problem: output kept beside the cells
	EventCaptureSkip  Event = "capture_skip"  // Phase, Node, Path of the folder, Problem: why its captures, or the rest of them, were left out
	EventAttemptStart Event = "attempt_start" // Cell, Attempt
	EventFaultOpen    Event = "fault_open"    // Cell, Attempt, Fault, FaultIndex, Node, Undo: written before the injection
	EventFaultClose   Event = "fault_close"   // Cell, Attempt, FaultIndex, Node: the undo succeeded
	EventAttemptEnd   Event = "attempt_end"   // Cell, Attempt, Document: digest of attempt.json; raw files are on disk
	EventSkip         Event = "skip"          // Cell, Problem: excluded or not run for good
	EventGate         Event = "gate"          // Phase, Gate
	EventStop         Event = "stop"          // Reason: the run was stopped and can be resumed
	EventNote         Event = "note"          // Reason: something a reader should know (a newer tool, a changed boot id, no lease)
	EventClose        Event = "close"         // the run is complete; nothing follows but reopen
)

// Record is one line of run/journal.jsonl. Seq counts from 0; Prev is the
// digest of the line before, without its line end, and empty in the first.
type Record struct {
	Seq   int64     `json:"seq"`
	Prev  Digest    `json:"prev,omitempty"`
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`

	Media      string        `json:"media,omitempty"`
	Run        string        `json:"run,omitempty"`
	Plan       Digest        `json:"plan,omitempty"` // of the bytes of run/plan.json
	Tool       *Tool         `json:"tool,omitempty"`
	Torn       string        `json:"torn,omitempty"` // path of the tail that was cut off
	Seal       Digest        `json:"seal,omitempty"`
	Phase      string        `json:"phase,omitempty"`
	Node       string        `json:"node,omitempty"`
	Identity   *NodeIdentity `json:"identity,omitempty"`
	Cell       string        `json:"cell,omitempty"`
	Attempt    int           `json:"attempt,omitempty"`
	Document   Digest        `json:"document,omitempty"`
	Path       string        `json:"path,omitempty"`
	Files      []File        `json:"files,omitempty"`
	Problem    *Problem      `json:"problem,omitempty"`
	Fault      *Fault        `json:"fault,omitempty"`
	FaultIndex int           `json:"faultIndex,omitempty"`
	Undo       []string      `json:"undo,omitempty"` // argv that undoes the fault on Node; empty: nothing to undo
	Gate       *GateResult   `json:"gate,omitempty"`
	Reason     string        `json:"reason,omitempty"`
}
