package attest

import (
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// PredicateType names the predicate of the operator's statement.
const PredicateType = "https://rackproof.dev/attestation/acceptance/v1"

// MediaPredicate is the media type inside the predicate.
const MediaPredicate = "application/vnd.rackproof.acceptance.v1+json"

// maxListed bounds each list of a predicate, so that a statement stays near
// a megabyte on the worst of days. Each has its whole number beside it.
const maxListed = 1000

// Predicate is what the operator signs about a run, beside the digests of
// the two lists. Everything in it follows from the sealed files; Check
// derives it again and compares.
type Predicate struct {
	MediaType string `json:"mediaType"` // MediaPredicate
	Minor     int    `json:"minor"`

	Run      string    `json:"run"`
	Tool     ToolRef   `json:"tool"`
	Started  time.Time `json:"started"`  // first journal record: claimed by the signer's clock
	Finished time.Time `json:"finished"` // last journal record: claimed by the signer's clock

	Plan    evidence.Digest `json:"plan"`    // of the bytes of run/plan.json
	Runbook evidence.Digest `json:"runbook"` // of the sources, as in the plan
	Verdict VerdictRef      `json:"verdict"`

	Coverage          CoverageCounts `json:"coverage"`
	PassedTests       []string       `json:"passedTests"` // in the plan's order, as the three below
	InconclusiveTests []string       `json:"inconclusiveTests"`
	ErrorTests        []string       `json:"errorTests"`
	FailedTests       []string       `json:"failedTests"`
	Open              OpenPoints     `json:"open"`
	Cuts              Cuts           `json:"cuts"`
	Retried           Retried        `json:"retried"`

	Simulated     bool     `json:"simulated"`     // a node said that it is simulated
	SharedMachine bool     `json:"sharedMachine"` // several nodes may be one machine
	Narrowed      []string `json:"narrowed"`      // the flags that left something out
	OffContract   []string `json:"offContract"`   // the variables that differ from the contract
	Nodes         Nodes    `json:"nodes"`

	Journal Journal `json:"journal"`
	Files   Files   `json:"files"`
	Merkle  Merkle  `json:"merkle"`
}

// ToolRef is the program that started the run.
type ToolRef struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Commit  string          `json:"commit,omitempty"`
	Digest  evidence.Digest `json:"digest,omitempty"` // of the executable
}

// VerdictRef is run/verdict.json in short.
type VerdictRef struct {
	Digest  evidence.Digest  `json:"digest"`
	Outcome evidence.Outcome `json:"outcome"`
}

// CoverageCounts is the verdict's coverage in numbers.
type CoverageCounts struct {
	Cells        int `json:"cells"` // expected
	Measured     int `json:"measured"`
	Nodes        int `json:"nodes"`
	NodesPassing int `json:"nodesPassing"`
	Findings     int `json:"findings"`
	Passing      int `json:"passing"`
}

// OpenPoints are findings that do not pass, then cells that were not
// measured, in the verdict's order.
type OpenPoints struct {
	Total  int         `json:"total"`
	Points []OpenPoint `json:"points"` // at most 1,000
}

// OpenPoint is a finding (Test, Threshold, Subject) or a cell (Cell, Node).
type OpenPoint struct {
	Test      string           `json:"test,omitempty"`
	Threshold string           `json:"threshold,omitempty"`
	Subject   evidence.Subject `json:"subject,omitempty"`
	Cell      string           `json:"cell,omitempty"`
	Node      string           `json:"node,omitempty"`
	Outcome   evidence.Outcome `json:"outcome"`
	Class     evidence.Class   `json:"class,omitempty"`
}

// Cuts are the attempts that the runner's death or a stop ended.
type Cuts struct {
	Total    int          `json:"total"`
	Attempts []CutAttempt `json:"attempts"` // at most 1,000
}

// CutAttempt names one attempt of a cell.
type CutAttempt struct {
	Cell    string `json:"cell"`
	Attempt int    `json:"attempt"`
}

// Retried are the cells that passed on a later attempt.
type Retried struct {
	Total int      `json:"total"`
	Cells []string `json:"cells"` // at most 1,000
}

// Nodes counts the fleet, and those of it that were reached and identified.
type Nodes struct {
	Expected int `json:"expected"`
	Reached  int `json:"reached"`
}

// Journal pins run/journal.jsonl: Head is the digest of its last line.
type Journal struct {
	Records int64           `json:"records"`
	Head    evidence.Digest `json:"head"`
}

// Files is the manifest's number of files and the sum of their sizes.
type Files struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// MerkleAlg is the tree of RFC 6962, section 2.1, with SHA-256.
const MerkleAlg = "rfc6962-sha256"

// Merkle is the root of the tree whose leaves are the manifest's entry lines,
// so that a part of the evidence can be shown without the rest.
type Merkle struct {
	Alg  string `json:"alg"`
	Root string `json:"root"` // 64 hex digits
	Size int64  `json:"size"` // leaves
}
