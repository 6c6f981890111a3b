package cli

import (
	"crypto/sha256"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// version is the version of the program, as runbooks require it.
const version = "0.1.0"

// modePlain says that no program of ours is pushed to the nodes.
const modePlain = "plain"

// tool describes the running program for the evidence.
func (p *Process) tool() (evidence.Tool, error) {
	t := evidence.Tool{
		MediaType: evidence.MediaTool, Minor: evidence.Minor, Name: "rackproof", Version: version, Commit: commit(),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Mode: modePlain, Checks: make(map[string]int),
	}
	for _, check := range checks.Builtin() {
		spec := check.Spec()
		t.Checks[spec.Name] = spec.Version
	}
	var err error
	t.Digest, err = p.ownDigest()
	return t, err
}

// commit is the source revision that the program was built from, marked where
// the tree was not clean; it is empty where the build knows none.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + modified
}

// ownDigest is the digest of the running program's file.
func (p *Process) ownDigest() (evidence.Digest, error) {
	path, err := p.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return evidence.DigestFromSum(hash.Sum(nil)), nil
}
