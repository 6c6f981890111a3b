package quickstart_test

import (
	"encoding/csv"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/ssh"
)

// BenchmarkThousandNodes runs the example without its storage tests on 1,024
// simulated nodes over SSH, rack and runner in this one process.
func BenchmarkThousandNodes(b *testing.B) {
	const hosts = "gpu[0001-1024]"
	names, err := nodeset.Parse(hosts, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := rack.New(rack.Config{Nodes: names, Seed: 1, Speed: speed})
		if err != nil {
			b.Fatal(err)
		}
		layout := [][]string{{"node", "rack", "unit"}}
		for _, n := range r.Nodes() {
			layout = append(layout, []string{n.Name, n.Cabinet(), strconv.Itoa(n.Unit())})
		}
		var text strings.Builder
		if err := csv.NewWriter(&text).WriteAll(layout); err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		lab, access, err := sim.Serve(b.Context(), sim.NewNodes(r, nil), dir)
		if err != nil {
			b.Fatal(err)
		}
		book, plan := loadWith(b, withoutStorage(source(b)), text.String(), map[string]string{"hosts": hosts, "leader": names[0]})
		reach, err := json.Marshal(map[string]any{"ssh_config": access.SSHConfig, "known_hosts": access.KnownHosts})
		if err != nil {
			b.Fatal(err)
		}
		executor, err := ssh.Kind().Open(b.Context(), reach, names)
		if err != nil {
			b.Fatal(err)
		}
		v := accept(b, book, plan, executor)
		if v.Outcome != evidence.Pass {
			b.Errorf("outcome is %s:\n%s", v.Outcome, strings.Join(open(v)[:min(20, len(open(v)))], "\n"))
		}
		if err := executor.Close(); err != nil {
			b.Error(err)
		}
		if err := lab.Close(); err != nil {
			b.Error(err)
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
	b.ReportMetric(float64(usage.Maxrss)/1024, "peak-MiB")
}

var storagePieces = regexp.MustCompile(`(?ms)^phase "storage" \{.*?^\}\n|^# -+ storage -+$.*?(^# --)`)

// withoutStorage is the runbook without its phase of that name.
func withoutStorage(text string) string {
	text = storagePieces.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, "[phase.storage]", "[phase.fabric]")
	return strings.ReplaceAll(text, "phase.storage, ", "")
}

func TestWithoutStorage(t *testing.T) {
	_, whole := load(t, source(t), nil)
	_, rest := load(t, withoutStorage(source(t)), nil)
	count := func(p *evidence.Plan) (storage, others int) {
		for _, test := range p.Tests {
			if test.Check == "storage_fio" {
				storage++
			} else {
				others++
			}
		}
		return storage, others
	}
	storage, others := count(whole)
	left, same := count(rest)
	if storage == 0 || left != 0 || same != others {
		t.Errorf("of %d storage tests and %d others, %d and %d are left", storage, others, left, same)
	}
}
