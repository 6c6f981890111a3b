//go:build unix

package verify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rackproof/rackproof/evidence/archive"
)

// A pipe is read once, however large what comes out of it is.
func TestArchiveFromAPipe(t *testing.T) {
	r := newRig(t, small, nil)
	const each = 16 << 20
	for i := range memoryBytes/each + 1 {
		r.write(t, fmt.Sprintf("approvals/%02d-ops-00aa11bb.sigstore.json", i), bytes.Repeat([]byte{' '}, each))
	}
	packed, err := os.ReadFile(pack(t, r.dir))
	must(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	pipe := filepath.Join(t.TempDir(), "bundle"+archive.Suffix)
	must(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, packed, 0o600) }()
	source, err := OpenSource(pipe, UnsignedLimits)
	must(t, err)
	if source.temp == "" {
		t.Error("it was unpacked into memory")
	}
	must(t, source.Close())
	must(t, <-written)
}
