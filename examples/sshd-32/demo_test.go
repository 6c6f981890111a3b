package sshd32_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The verdict's numbers are those that fio itself wrote.
func TestNumbersAreFiosOwn(t *testing.T) {
	verdict := readVerdict(t, shared.run)
	for _, name := range shared.rack.Fleet.Names() {
		found, err := filepath.Glob(filepath.Join(shared.run, "cells", "small_reads", "*", "1", "raw", "fio-32."+name, "stdout"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: want one output of fio, found %d", name, len(found))
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		var output struct {
			Jobs []struct {
				Read struct {
					IOPS float64 `json:"iops"`
				} `json:"read"`
			} `json:"jobs"`
		}
		if err := json.Unmarshal(text, &output); err != nil {
			t.Fatalf("%s: %v", found[0], err)
		}
		seen := false
		for _, f := range verdict.Findings {
			if f.Test == "small_reads" && f.Threshold == "iops" && string(f.Subject) == name {
				seen = true
				if f.Observed == nil || *f.Observed != output.Jobs[0].Read.IOPS {
					t.Errorf("%s: observed %v, fio wrote %v", name, f.Observed, output.Jobs[0].Read.IOPS)
				}
			}
		}
		if !seen {
			t.Errorf("%s has no finding", name)
		}
	}
}

func TestVerified(t *testing.T) {
	for _, path := range []string{shared.bundle, shared.run} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := shared.rackproof(t.Context(), "verify", path, "--trust", shared.trust, "--json")
			if got.code != 0 {
				t.Fatalf("verify: exit %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			var report struct {
				Level string `json:"level"`
			}
			if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
				t.Fatal(err)
			}
			if report.Level != "reproduced" {
				t.Errorf("level %q, want reproduced", report.Level)
			}
		})
	}
}

// What docs/evidence.md tells people to type, with the tools that a vendor has.
func TestStockTools(t *testing.T) {
	dir := t.TempDir()
	commands := strings.Join([]string{
		"set -e",
		fmt.Sprintf("tar --zstd -xf '%s' -C '%s'", shared.bundle, dir),
		fmt.Sprintf("cd '%s'", dir),
		"sha256sum --strict --quiet -c SHA256SUMS",
		"jq -r .dsseEnvelope.payload evidence.sigstore.json | base64 -d > ../payload",
		"jq -r '.dsseEnvelope.signatures[0].sig' evidence.sigstore.json | base64 -d > ../sig",
		`{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c < ../payload)"; cat ../payload; } > ../pae`,
		fmt.Sprintf("openssl dgst -sha256 -verify '%s' -signature ../sig ../pae", filepath.Join(shared.dir, "key.pub")),
		`jq -r '.subject[] | "\(.digest.sha256)  \(.name)"' ../payload | sha256sum --strict -c -`,
	}, "\n")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", commands).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Verified OK", "manifest.json: OK", "SHA256SUMS: OK"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
