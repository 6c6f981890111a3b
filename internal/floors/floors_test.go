// Package floors holds the import rules of the house as data, and the test
// that keeps them.
package floors

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rackproof/rackproof/"

// ground is the package that every other may import.
const ground = "evidence/nodeset"

// A room is what one package may import: of ours by path inside the module, of
// others by module path. The standard library is open to all; process state is
// not, see process_test.go.
type room struct {
	floor  int
	ours   []string
	others []string
}

const (
	xsync    = "golang.org/x/sync"
	xcrypto  = "golang.org/x/crypto"
	hcl      = "github.com/hashicorp/hcl/v2"
	cty      = "github.com/zclconf/go-cty"
	sigstore = "github.com/sigstore/sigstore"
	specs    = "github.com/sigstore/protobuf-specs"
	protobuf = "google.golang.org/protobuf"
)

var rooms = map[string]room{
	ground:             {floor: 0},
	"evidence":         {floor: 1},
	"evidence/archive": {floor: 1, ours: []string{"evidence"}, others: []string{"github.com/klauspost/compress"}},

	"thresholds": {floor: 2, ours: []string{"evidence"}},
	"reports":    {floor: 2, ours: []string{"evidence"}},
	"evidence/attest": {floor: 2, ours: []string{"evidence"}, others: []string{
		sigstore, specs, protobuf, "github.com/secure-systems-lab/go-securesystemslib", "github.com/transparency-dev/merkle",
	}},

	"checks":           {floor: 3, ours: []string{"evidence"}},
	"checks/checktest": {floor: 3, ours: []string{"checks", "evidence"}, others: []string{"github.com/google/go-cmp"}},

	"runner":              {floor: 4, ours: []string{"evidence", "checks"}, others: []string{xsync}},
	"runner/sshserver":    {floor: 4, ours: []string{"runner", "evidence"}, others: []string{xcrypto}},
	"runner/executortest": {floor: 5, ours: []string{"runner", "evidence"}},
	"runner/local":        {floor: 5, ours: []string{"runner", "evidence"}, others: []string{xsync}},
	"runner/sim":          {floor: 5, ours: []string{"runner", "evidence", "runner/sshserver", "runner/sim/rack"}, others: []string{xcrypto}},
	"runner/sim/rack":     {floor: 4},
	"runner/ssh": {floor: 5, ours: []string{"runner", "evidence"}, others: []string{
		xsync, xcrypto, "github.com/skeema/knownhosts", "github.com/kevinburke/ssh_config",
	}},
	"runner/ssh/sshfleet": {floor: 5, others: []string{xsync, xcrypto}},

	"runbook": {floor: 5, ours: []string{"evidence", "evidence/attest", "checks", "runner", "thresholds"}, others: []string{
		hcl, cty, "github.com/agext/levenshtein",
	}},

	"internal/diag":     {floor: 6, others: []string{hcl, cty}},
	"internal/verify":   {floor: 6, ours: []string{"runbook", "checks", "thresholds", "evidence", "evidence/archive", "evidence/attest"}},
	"internal/killtest": {floor: 6, ours: []string{"evidence"}},

	"internal/cli": {floor: 7, ours: []string{
		"evidence", "evidence/archive", "evidence/attest", "thresholds", "reports", "checks",
		"runner", "runner/local", "runner/sim", "runner/sim/rack", "runner/ssh", "runbook", "internal/diag", "internal/verify",
	}, others: []string{hcl, "github.com/spf13/cobra", "golang.org/x/term", xsync}},

	"cmd/rackproof":            {floor: 8, ours: []string{"internal/cli"}},
	"examples/local":           {floor: 8},
	"examples/quickstart":      {floor: 8},
	"examples/quickstart/demo": {floor: 8},
	"examples/sshd-32":         {floor: 8},
	"examples/sshd-32/rack":    {floor: 6, ours: []string{"runner/ssh/sshfleet"}},
	"examples/sshd-32/demo":    {floor: 8, ours: []string{"examples/sshd-32/rack"}},
	"internal/fuzzall":         {floor: 8},
	"internal/floors":          {floor: 8},
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T) []listed {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// broken returns a sentence for every import of p that its room forbids.
func broken(p listed) []string {
	name := strings.TrimPrefix(p.ImportPath, module)
	here, ok := rooms[name]
	if !ok {
		return []string{fmt.Sprintf("%s has no row in the floors table", name)}
	}
	var faults []string
	for _, imported := range p.Imports {
		if ours, isOurs := strings.CutPrefix(imported, module); isOurs {
			if ours == ground {
				continue
			}
			if !slices.Contains(here.ours, ours) {
				faults = append(faults, fmt.Sprintf("%s (floor %d) imports %s (floor %d)", name, here.floor, ours, rooms[ours].floor))
			} else if rooms[ours].floor > here.floor {
				faults = append(faults, fmt.Sprintf("the table lets %s (floor %d) import %s, which stands above it (floor %d)", name, here.floor, ours, rooms[ours].floor))
			}
			continue
		}
		first, _, _ := strings.Cut(imported, "/")
		if !strings.Contains(first, ".") {
			continue
		}
		if !slices.ContainsFunc(here.others, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
			faults = append(faults, fmt.Sprintf("%s (floor %d) imports third party %s", name, here.floor, imported))
		}
	}
	return faults
}

func TestFloors(t *testing.T) {
	packages := list(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages, so this test looked at nothing", len(packages))
	}
	seen := map[string]bool{}
	for _, p := range packages {
		seen[strings.TrimPrefix(p.ImportPath, module)] = true
		for _, fault := range broken(p) {
			t.Error(fault)
		}
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("the floors table has a row for %s, which does not exist", name)
		}
	}
}

// A rule that never fires is no rule.
func TestFloorsCatchABreach(t *testing.T) {
	for _, test := range []struct {
		name   string
		breach listed
		want   string
	}{
		{"upward", listed{ImportPath: module + "reports", Imports: []string{module + "thresholds"}}, "reports (floor 2) imports thresholds (floor 2)"},
		{"third party", listed{ImportPath: module + "evidence", Imports: []string{hcl}}, "evidence (floor 1) imports third party " + hcl},
		{"unknown", listed{ImportPath: module + "utils"}, "utils has no row in the floors table"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := broken(test.breach); len(got) != 1 || got[0] != test.want {
				t.Errorf("broken = %q, want %q", got, test.want)
			}
		})
	}
}
