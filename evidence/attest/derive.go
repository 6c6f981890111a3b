package attest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rackproof/rackproof/evidence"
)

// derive computes the predicate of a sealed run from its files alone.
func derive(fsys fs.FS, manifest []byte) (*Predicate, error) {
	run, err := evidence.Open(fsys)
	if err != nil {
		return nil, err
	}
	switch {
	case run.Plan == nil:
		return nil, fmt.Errorf("%s: absent", evidence.PlanPath)
	case run.Tool == nil:
		return nil, errors.New("run/tool.json: absent")
	case run.Verdict == nil:
		return nil, fmt.Errorf("%s: absent", evidence.VerdictPath)
	case len(run.Records) == 0:
		return nil, fmt.Errorf("%s: no records", evidence.JournalPath)
	}
	last := run.Records[len(run.Records)-1]
	if last.Event != evidence.EventClose {
		return nil, fmt.Errorf("%s: the last record is %q: a sealed run ends with %q", evidence.JournalPath, last.Event, evidence.EventClose)
	}

	p := &Predicate{
		MediaType: MediaPredicate,
		Minor:     evidence.Minor,
		Run:       run.Run,
		Tool: ToolRef{
			Name: run.Tool.Name, Version: run.Tool.Version, Commit: run.Tool.Commit, Digest: run.Tool.Digest,
		},
		Started:       run.Records[0].Time.UTC(),
		Finished:      last.Time.UTC(),
		Plan:          evidence.DigestOf(run.PlanBytes),
		Runbook:       run.Plan.Runbook,
		Simulated:     len(evidence.SimulatedNodes(run.Plan, run.Inventory, run.Records)) > 0,
		SharedMachine: run.Plan.SharedMachine,
		Narrowed:      listed(run.Plan.Narrowed),
		OffContract:   listed(run.Plan.OffContract()),
		Nodes:         nodes(run),
	}
	p.fillVerdict(run.Verdict)

	verdict, err := readFile(fsys, evidence.VerdictPath, maxDocument)
	if err != nil {
		return nil, err
	}
	p.Verdict.Digest = evidence.DigestOf(verdict)

	journal, err := readFile(fsys, evidence.JournalPath, maxDocument)
	if err != nil {
		return nil, err
	}
	p.Journal = Journal{Records: int64(len(run.Records)), Head: journalHead(journal)}

	p.Files, p.Merkle, err = totals(manifest)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// fillVerdict copies what the verdict says into the predicate.
func (p *Predicate) fillVerdict(v *evidence.Verdict) {
	p.Verdict.Outcome = v.Outcome
	p.Coverage = CoverageCounts{
		Cells: v.Coverage.Cells, Measured: v.Coverage.Measured,
		Nodes: v.Coverage.Nodes, NodesPassing: v.Coverage.NodesPassing,
		Findings: v.Coverage.Findings, Passing: v.Coverage.Passing,
	}

	p.PassedTests, p.InconclusiveTests, p.ErrorTests, p.FailedTests = []string{}, []string{}, []string{}, []string{}
	for _, t := range v.Tests {
		switch t.Outcome {
		case evidence.Pass:
			p.PassedTests = append(p.PassedTests, t.Test)
		case evidence.Error:
			p.ErrorTests = append(p.ErrorTests, t.Test)
		case evidence.Fail:
			p.FailedTests = append(p.FailedTests, t.Test)
		default:
			p.InconclusiveTests = append(p.InconclusiveTests, t.Test)
		}
	}

	p.Open.Points = []OpenPoint{}
	open := func(point OpenPoint) {
		p.Open.Total++
		if len(p.Open.Points) < maxListed {
			p.Open.Points = append(p.Open.Points, point)
		}
	}
	for _, f := range v.Findings {
		if f.Outcome != evidence.Pass {
			open(OpenPoint{
				Test: f.Test, Threshold: f.Threshold, Subject: f.Subject,
				Node: f.Node, Outcome: f.Outcome, Class: f.Class,
			})
		}
	}
	for _, c := range v.Coverage.Open {
		open(OpenPoint{Cell: c.Cell, Node: c.Problem.Node, Outcome: c.Problem.Class.Outcome(), Class: c.Problem.Class})
	}

	p.Cuts = Cuts{Total: len(v.Coverage.Cuts), Attempts: []CutAttempt{}}
	for _, c := range v.Coverage.Cuts[:min(len(v.Coverage.Cuts), maxListed)] {
		p.Cuts.Attempts = append(p.Cuts.Attempts, CutAttempt{Cell: c.Cell, Attempt: c.Attempt})
	}
	retried := v.Coverage.Retried
	p.Retried = Retried{Total: len(retried), Cells: listed(retried[:min(len(retried), maxListed)])}
}

// listed is names as a JSON list that is never null.
func listed(names []string) []string { return append([]string{}, names...) }

// nodes counts the nodes of the fleet that the inventory has an identity of,
// without a problem.
func nodes(run *evidence.Bundle) Nodes {
	n := Nodes{Expected: len(run.Plan.Fleet.Nodes)}
	if run.Inventory == nil {
		return n
	}
	reached := make(map[string]bool)
	for _, identity := range run.Inventory.Nodes {
		reached[identity.Node] = identity.Problem == nil
	}
	for _, node := range run.Plan.Fleet.Nodes {
		if reached[node.Name] {
			n.Reached++
		}
	}
	return n
}

// journalHead is the digest of the last line, without its line end: what the
// next record would carry as Prev.
func journalHead(journal []byte) evidence.Digest {
	journal = bytes.TrimSuffix(journal, []byte("\n"))
	return evidence.DigestOf(journal[bytes.LastIndexByte(journal, '\n')+1:])
}

// totals sums up a manifest.
func totals(manifest []byte) (Files, Merkle, error) {
	m, leaves, err := evidence.ReadManifest(manifest)
	if err != nil {
		return Files{}, Merkle{}, fmt.Errorf("%s: %w", evidence.ManifestPath, err)
	}
	files := Files{Count: int64(len(m.Files))}
	for _, entry := range m.Files {
		if entry.Size < 0 || files.Bytes+entry.Size < files.Bytes {
			return Files{}, Merkle{}, fmt.Errorf("%s: %s: size %d", evidence.ManifestPath, entry.Path, entry.Size)
		}
		files.Bytes += entry.Size
	}
	tree, err := merkleOf(leaves)
	if err != nil {
		return Files{}, Merkle{}, fmt.Errorf("%s: %w", evidence.ManifestPath, err)
	}
	return files, tree, nil
}
