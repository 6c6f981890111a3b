package evidence

import (
	"path"
	"strconv"
	"strings"
)

// Where things are in a run directory and, with the same names, in a bundle.
const (
	PlanPath         = "run/plan.json"
	ToolPath         = "run/tool.json"
	InventoryPath    = "run/inventory.json"
	JournalPath      = "run/journal.jsonl"
	MeasurementsPath = "run/measurements.jsonl"
	VerdictPath      = "run/verdict.json"
	RunbookDir       = "run/runbook"

	ManifestPath  = "manifest.json"
	SumsPath      = "SHA256SUMS"
	SignaturePath = "evidence.sigstore.json"
	ApprovalsDir  = "approvals"

	sealsDir    = "run/seals"
	tornPrefix  = "run/torn-"
	cellsDir    = "cells"
	capturesDir = "captures"

	// Neither survives sealing.
	lockPath = ".lock"
	tempDir  = ".tmp"
)

// Unlisted reports whether p may be in a sealed run without being in its
// manifest: the two lists, the signature, and approvals.
func Unlisted(p string) bool {
	switch p {
	case ManifestPath, SumsPath, SignaturePath:
		return true
	}
	dir, name := path.Split(p)
	return dir == ApprovalsDir+"/" && strings.HasSuffix(name, ".sigstore.json") && checkSegment(name) == nil
}

// IsTail reports whether p is where the tail of a journal, or of an attempt,
// is kept that a death left torn.
func IsTail(p string) bool {
	n, found := strings.CutPrefix(p, tornPrefix)
	number, err := strconv.Atoi(n)
	return found && err == nil && strconv.Itoa(number) == n && number > 0
}

// BundlePath checks that p can be a file of a bundle: a ValidPath, or
// SHA256SUMS at the top.
func BundlePath(p string) error {
	if p == SumsPath {
		return nil
	}
	return ValidPath(p)
}
