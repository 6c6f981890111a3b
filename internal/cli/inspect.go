package cli

import (
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/reports"
)

const (
	mediaInspection = "application/vnd.rackproof.inspection.v1+json"
	unverified      = "UNVERIFIED: this is what the bundle says of itself; rackproof verify checks it"
)

// inspection is what `inspect` shows, as text and as JSON.
type inspection struct {
	MediaType string `json:"mediaType"`
	Minor     int    `json:"minor"`
	Verified  bool   `json:"verified"` // always false
	Warning   string `json:"warning"`

	Run       string              `json:"run"`
	Sealed    bool                `json:"sealed"`
	Signed    bool                `json:"signed"`
	Plan      evidence.Digest     `json:"plan"`
	Name      string              `json:"name"`
	Version   string              `json:"version,omitempty"`
	Runbook   evidence.Digest     `json:"runbook"`
	Sources   []evidence.Source   `json:"sources"`
	Outcome   *evidence.Outcome   `json:"outcome,omitempty"`
	Coverage  *evidence.Coverage  `json:"coverage,omitempty"`
	Tool      *evidence.Tool      `json:"tool,omitempty"`
	Simulated bool                `json:"simulated"` // nodes of the run are not real machines
	Inventory *evidence.Inventory `json:"inventory,omitempty"`
	Records   int                 `json:"records"`
	Files     []fileSize          `json:"files"`
}

type fileSize struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

func newInspectCmd(p *Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect BUNDLE",
		Short: "Show what is in a bundle, without verifying it",
		Long:  "Show what is in a run directory or an archive. Nothing is verified.",
		Example: `  rackproof inspect pod7.evidence.tar.zst
  rackproof inspect runs/2026-11-30t14-02-11z-3f9a --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runInspect(p, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runInspect(p *Process, path string, asJSON bool) error {
	bundle, source, err := openBundle(path)
	if err != nil {
		return err
	}
	defer source.Close()
	i, err := inspect(bundle, source.FS)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(p.Stdout, i)
	}
	return i.show(newLines(p.Stdout))
}

func inspect(b *evidence.Bundle, fsys fs.FS) (*inspection, error) {
	i := &inspection{
		MediaType: mediaInspection, Warning: unverified, Run: b.Run, Sealed: b.Sealed, Signed: b.Signed,
		Plan: evidence.DigestOf(b.PlanBytes), Name: b.Plan.Name, Version: b.Plan.Version, Runbook: b.Plan.Runbook, Sources: b.Plan.Sources,
		Tool: b.Tool, Simulated: len(evidence.SimulatedNodes(b.Plan, b.Inventory, b.Records)) > 0, Inventory: b.Inventory, Records: len(b.Records), Files: []fileSize{},
	}
	if b.Verdict != nil {
		i.Outcome, i.Coverage = &b.Verdict.Outcome, &b.Verdict.Coverage
	}
	err := evidence.Walk(fsys, func(path string, size int64) error {
		i.Files = append(i.Files, fileSize{path, size})
		return nil
	})
	return i, err
}

// linesPerScreen is after how many lines the warning is said again: fewer
// than any terminal shows at once.
const linesPerScreen = 20

func (i *inspection) show(out *reports.Printer) error {
	lines := 0
	say := func(format string, args ...any) {
		if lines%linesPerScreen == 0 {
			out.Line("%s", i.Warning)
		}
		lines++
		out.Line(format, args...)
	}
	say("Run       %s, %s; sealed %t, has a signature %t", i.Run, evidence.Count(i.Records, "record"), i.Sealed, i.Signed)
	say("Plan      %s %s", strings.TrimSpace(i.Name+" "+i.Version), string(i.Plan))
	say("Runbook   %s", string(i.Runbook))
	for _, s := range i.Sources {
		say("  source  %s (%d bytes) %s", s.Path, s.Size, string(s.Digest))
	}
	if i.Outcome != nil {
		say("Verdict   %s, as enclosed", i.Outcome.String())
	}
	if i.Simulated {
		say("          ! %s", simulatedLine)
	}
	if i.Tool != nil {
		say("Tool      %s %s %s", i.Tool.Name, i.Tool.Version, i.Tool.Platform)
	}
	if i.Inventory != nil {
		say("Executor  %s", i.Inventory.Executor)
		for _, n := range i.Inventory.Nodes {
			say("  node    %s %s %s", n.Node, n.Address, n.HostKey)
		}
	}
	say("Files     %d", len(i.Files))
	for _, f := range i.Files {
		say("  %12d  %s", f.Size, f.Path)
	}
	out.Line("%s", i.Warning)
	return out.Err
}
