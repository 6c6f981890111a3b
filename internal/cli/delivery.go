package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// delivery is what is left to do with a run that was judged and sealed: to
// sign it, if there is a key, to pack it, and to say so.
type delivery struct {
	plan     *evidence.Plan
	dir      string
	run      string
	records  []evidence.Record
	signer   attest.Signer // nil: do not sign
	signed   bool          // it has a signature already
	verdict  evidence.Verdict
	progress *progress
}

func (d delivery) archive() string { return archivePath(d.dir, d.run, d.records) }

func (d delivery) deliver(ctx context.Context, p *Process) error {
	again := "the run is judged and sealed; once the cause is mended: " + resumeCommand(d.plan, d.dir)
	if d.signer != nil {
		if err := attest.Sign(ctx, d.dir, d.signer); err != nil {
			return hinted(err, again+" --key FILE")
		}
		d.signed = true
	}
	archive := d.archive()
	if err := packDir(d.dir, archive); err != nil {
		return hinted(err, again)
	}
	simulated := len(evidence.SimulatedNodes(d.plan, nil, d.records)) > 0
	d.progress.verdict(d.run, d.dir, archive, d.signed, simulated, d.verdict)
	if d.progress.ndjson != nil {
		return nil
	}
	out := newLines(p.Stdout)
	out.Line("verdict   %s", verdictLine(d.verdict))
	if simulated {
		out.Line("          ! %s", simulatedLine)
	}
	out.Line("run       %s", d.dir)
	out.Line("evidence  %s (%s)", archive, map[bool]string{true: "signed", false: "not signed"}[d.signed])
	out.Line("report    rackproof report %s", d.dir)
	return out.Err
}

// undelivered reports whether a complete, sealed run was never packed: its
// process ended, or the disk was full, between its seal and its archive.
func (d delivery) undelivered() (bool, error) {
	_, err := os.Lstat(d.archive())
	switch {
	case err == nil:
		return false, nil
	case os.IsNotExist(err):
		return true, nil
	}
	return false, fmt.Errorf("archive: %w", plainPath(err))
}
