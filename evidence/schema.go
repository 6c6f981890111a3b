package evidence

import (
	"encoding/json"
	"strings"
	"time"
)

// The media types of the documents. The number is the schema's major; each
// document carries its minor beside it.
const (
	MediaPlan      = "application/vnd.rackproof.plan.v1+json"
	MediaAttempt   = "application/vnd.rackproof.attempt.v1+json"
	MediaInventory = "application/vnd.rackproof.inventory.v1+json"
	MediaTool      = "application/vnd.rackproof.tool.v1+json"
	MediaVerdict   = "application/vnd.rackproof.verdict.v1+json"
	MediaManifest  = "application/vnd.rackproof.manifest.v1+json"
	MediaJournal   = "application/vnd.rackproof.journal.v1+json"
)

// Minor is the schema's minor version that this build writes.
const Minor = 0

// Param declares one argument of a check, an executor or a fault, as plain
// data: only the runbook package turns it into a schema of its language.
type Param struct {
	Name     string
	Type     ParamType
	Unit     string // where it is a number with a unit
	Required bool
	Default  any // JSON-able; nil means absent
	Doc      string
	Enum     []string // the values that a text may have
	Nested   []Param  // for ParamBlock and ParamBlocks: the block's own arguments
	Sampling bool     // a ParamDuration that the runbook's sample_interval, where there is one, is the default of
	Whole    bool     // a ParamNumber or ParamNumbers that is counted: no fractions
	Empty    bool     // a ParamArgv that may be an empty list, where that means something
}

// ParamType is the type of a Param and of its JSON value.
type ParamType string

// The types of a parameter.
const (
	ParamString   ParamType = "string"
	ParamNumber   ParamType = "number"
	ParamBool     ParamType = "bool"
	ParamDuration ParamType = "duration" // JSON text of a Duration
	ParamBytes    ParamType = "bytes"    // "16GiB"; JSON text in the spelling that FormatBytes gives
	ParamStrings  ParamType = "list of string"
	ParamNumbers  ParamType = "list of number"
	ParamArgv     ParamType = "argv"         // one command: a program and its arguments, a list of string
	ParamArgvs    ParamType = "list of argv" // list of list of string
	ParamTable    ParamType = "table"        // list of objects of text, as csvdecode gives
	ParamBlock    ParamType = "block"        // one nested block: an object
	ParamBlocks   ParamType = "blocks"       // labelled nested blocks: a list of objects, label in "name"
	ParamPath     ParamType = "path"         // a file, relative to the runbook's folder
)

// Capability is something that an executor can do: CapExec, CapGang, or
// "fault:" and a fault kind.
type Capability string

// The capabilities beside the fault kinds.
const (
	CapExec Capability = "exec"
	CapGang Capability = "gang"
)

// CapFault is the capability to inject faults of a kind.
func CapFault(kind string) Capability { return Capability("fault:" + kind) }

// Task is a command for one node: argv, environment and stdin, never a shell
// string.
type Task struct {
	// Mark names the run, cell, attempt and step; the executor puts it into
	// the environment as RACKPROOF_MARK so that leftovers can be found.
	Mark     string
	Node     string
	Argv     []string
	Env      map[string]string // beside the forced environment
	Stdin    []byte
	Deadline time.Duration // zero: none of its own; the context rules
	Silence  time.Duration // zero: none
	// OutputLimit caps each stream, in bytes; zero means the executor's
	// default. What exceeds it is dropped, counted and flagged.
	OutputLimit int64
}

// Exit is how a Task ended, and what raw/<step>.<node>/exit.json holds.
type Exit struct {
	Argv   []string  `json:"argv"`
	Env    []string  `json:"env,omitempty"` // names only
	Class  Class     `json:"class"`
	Detail string    `json:"detail,omitempty"`
	Code   *int      `json:"code,omitempty"`   // absent when there was none
	Signal string    `json:"signal,omitempty"` // KILL, TERM, ...
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`

	StdoutBytes int64  `json:"stdoutBytes"` // bytes kept
	StderrBytes int64  `json:"stderrBytes"`
	Truncated   bool   `json:"truncated,omitempty"` // the output cap was hit
	Script      Digest `json:"script,omitempty"`    // the supervising script, where there was one
	HeldOpen    bool   `json:"heldOpen,omitempty"`  // a grandchild still held the output
}

// OK reports whether the command ran and exited with 0.
func (e Exit) OK() bool { return e.Class == ClassOK && e.Code != nil && *e.Code == 0 }

// Problem is the problem of step on node that e stands for, or nil.
func (e Exit) Problem(node, step string) *Problem {
	if e.Class == ClassOK {
		return nil
	}
	return &Problem{Node: node, Step: step, Class: e.Class, Detail: e.Detail}
}

// File names one file with its size and digest. The path is relative to the
// document that holds it.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// Attempt is one execution of one cell: cells/<cell>/<number>/attempt.json.
type Attempt struct {
	MediaType  string    `json:"mediaType"` // MediaAttempt
	Minor      int       `json:"minor"`
	Cell       string    `json:"cell"`
	Test       string    `json:"test"`
	Nodes      []string  `json:"nodes"` // the real names
	Repetition int       `json:"repetition"`
	Number     int       `json:"number"` // from 1
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	// Cut says that our own death or a stop ended it: neither a retry nor a
	// pass.
	Cut      bool      `json:"cut,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // of the runner and the executor
	Steps    []Step    `json:"steps"`              // sorted by directory
	Files    []File    `json:"files"`              // everything below raw/, sorted by path ("raw/…")
}

// Step is one command of an attempt.
type Step struct {
	Dir   string `json:"dir"` // <step>.<node>, under raw/
	Step  string `json:"step"`
	Node  string `json:"node"`
	Class Class  `json:"class"` // as in its exit.json
}

// Subject is what a measurement is of: gpu017, gpu017/gpu3,
// gpu017/mlx5_2/gpu018, or SubjectFleet.
type Subject string

// SubjectFleet is the subject of a measurement of a whole node set.
const SubjectFleet Subject = "fleet"

// Measurement is a value with its unit, derived from raw output.
type Measurement struct {
	Metric  string            `json:"metric"`
	Unit    string            `json:"unit"`
	Value   float64           `json:"value"`             // finite
	Missing string            `json:"missing,omitempty"` // the raw token where there is no number; Value is then 0
	Subject Subject           `json:"subject"`
	Labels  map[string]string `json:"labels,omitempty"`
	Source  string            `json:"source"` // file under raw/ and line or JSON path: "fio.n01/stdout:/jobs/0/read/iops"
}

// Fact is a text that a check read: a version, a model, a serial.
type Fact struct {
	Name    string  `json:"name"`
	Value   string  `json:"value"`
	Missing string  `json:"missing,omitempty"`
	Subject Subject `json:"subject"`
	Source  string  `json:"source"`
}

// MeasuredAttempt is an attempt with what its raw output gave.
type MeasuredAttempt struct {
	Attempt
	Measurements []Measurement
	Facts        []Fact
	// Unmeasured are Measure's own problems, and those of files that are
	// missing or do not match the journal.
	Unmeasured []Problem
}

// CellResult is everything known of one cell, rebuilt from journal and raw
// files alone. A cell that was never run has no attempts and a Skipped
// problem.
type CellResult struct {
	Cell     Cell
	Attempts []MeasuredAttempt // in order of their number
	Skipped  *Problem          // excluded, not-run, ...: why there is no attempt
}

// CellView is the cell joined with its test, for Measure.
type CellView struct {
	Cell    Cell
	Test    Test
	Fleet   Fleet
	Nodes   []string
	Attempt Attempt
}

// FaultEvent is one line of raw/faults.jsonl.
type FaultEvent struct {
	Fault int       `json:"fault"` // index into the test's faults
	Event string    `json:"event"` // inject_start, injected, undo_start, undone, error
	Time  time.Time `json:"time"`
	At    float64   `json:"at"` // seconds since the attempt began, on the runner's monotonic clock
	Node  string    `json:"node"`
	Error string    `json:"error,omitempty"`
}

// Finding is one threshold judged on one subject, or on the test as a whole.
type Finding struct {
	Test      string   `json:"test"`
	Threshold string   `json:"threshold"`
	Subject   Subject  `json:"subject"` // of the group: gpu017, rack=A3, fleet
	Outcome   Outcome  `json:"outcome"`
	Observed  *float64 `json:"observed,omitempty"`
	Text      string   `json:"text,omitempty"`   // observed text fact
	Margin    *float64 `json:"margin,omitempty"` // positive is inside the bound, in the threshold's unit
	Unit      string   `json:"unit,omitempty"`
	Reason    string   `json:"reason,omitempty"` // why it is not a pass, or "passed on attempt 2"
	Class     Class    `json:"class,omitempty"`  // of the problem that made it inconclusive or an error
	Node      string   `json:"node,omitempty"`   // the node to look at, where there is one
	Source    string   `json:"source,omitempty"` // cell, attempt and place of the deciding measurement
}

// Verdict is the whole judged: run/verdict.json.
type Verdict struct {
	MediaType string          `json:"mediaType"` // MediaVerdict
	Minor     int             `json:"minor"`
	Outcome   Outcome         `json:"outcome"`
	Findings  []Finding       `json:"findings"` // in plan order: test, threshold, subject
	Coverage  Coverage        `json:"coverage"`
	Gates     []GateResult    `json:"gates"`
	Releases  []ReleaseResult `json:"releases,omitempty"`
	Tests     []TestResult    `json:"tests"`
}

// TestResult is the outcome of one test.
type TestResult struct {
	Test    string  `json:"test"`
	Outcome Outcome `json:"outcome"`
	Cells   int     `json:"cells"`   // expected
	Passed  int     `json:"passed"`  // cells of which no finding or problem is open
	Retried int     `json:"retried"` // cells that passed on a later attempt
}

// Coverage says how much of the plan was measured, and names the rest.
type Coverage struct {
	Cells        int        `json:"cells"` // expected
	Measured     int        `json:"measured"`
	Nodes        int        `json:"nodes"`
	NodesPassing int        `json:"nodesPassing"`
	Findings     int        `json:"findings"`
	Passing      int        `json:"passing"`
	Open         []OpenCell `json:"open,omitempty"`
	Cuts         []OpenCell `json:"cuts,omitempty"`    // attempts cut by our own death or a stop
	Retried      []string   `json:"retried,omitempty"` // cells that passed on a later attempt
}

// OpenCell names a cell, or one attempt of it, and why it does not count.
type OpenCell struct {
	Cell    string  `json:"cell"`
	Attempt int     `json:"attempt,omitempty"`
	Problem Problem `json:"problem"`
}

// GateResult is one gate decided.
type GateResult struct {
	Phase   string   `json:"phase"`
	Met     bool     `json:"met"`
	Needed  int      `json:"needed"`
	Passing []string `json:"passing,omitempty"` // folded node sets
	Failing []string `json:"failing,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// ReleaseResult is one release rule decided from verdict alone.
type ReleaseResult struct {
	Release string  `json:"release"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
}

// Inventory is who the nodes were and how they were reached:
// run/inventory.json.
type Inventory struct {
	MediaType string          `json:"mediaType"` // MediaInventory
	Minor     int             `json:"minor"`
	Executor  string          `json:"executor"`
	Reach     json.RawMessage `json:"reach"` // the executor's configuration, no secrets
	Nodes     []NodeIdentity  `json:"nodes"` // in fleet order
}

// NodeIdentity is what a node said of itself when it was first reached.
type NodeIdentity struct {
	Node        string   `json:"node"`
	Address     string   `json:"address,omitempty"`
	MachineID   string   `json:"machineId,omitempty"`
	BootID      string   `json:"bootId,omitempty"`
	Serial      string   `json:"serial,omitempty"`
	HostKey     string   `json:"hostKey,omitempty"` // SHA256 fingerprint
	SSHVersion  string   `json:"sshVersion,omitempty"`
	Simulated   bool     `json:"simulated,omitempty"`
	ClockOffset *float64 `json:"clockOffset,omitempty"` // seconds, node minus runner
	Problem     *Problem `json:"problem,omitempty"`     // why it was not reached or may not be used
}

// SimulatedServer reports whether an SSH server's version string is that of the
// simulated rack, "SSH-2.0-rackproof-sim…": what a node says of itself.
func SimulatedServer(version string) bool {
	_, software, _ := strings.Cut(strings.TrimPrefix(version, "SSH-"), "-")
	return strings.HasPrefix(software, "rackproof-sim")
}

// Tool is the program that ran: run/tool.json.
type Tool struct {
	MediaType string         `json:"mediaType"` // MediaTool
	Minor     int            `json:"minor"`
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Commit    string         `json:"commit,omitempty"`
	Go        string         `json:"go"`
	Platform  string         `json:"platform"`
	Digest    Digest         `json:"digest,omitempty"` // of the executable
	Mode      string         `json:"mode"`             // plain: no program is pushed to the nodes
	Checks    map[string]int `json:"checks"`           // versions
}
