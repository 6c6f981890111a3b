package thresholds

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rackproof/rackproof/evidence"
)

var update = flag.Bool("update", false, "write the verdicts of testdata/*.txtar")

// TestGolden judges whole plans: plan.json and cells.json give verdict.json.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var plan evidence.Plan
			var cells []evidence.CellResult
			var want []byte
			for _, f := range archive.Files {
				switch f.Name {
				case "plan.json":
					decode(t, f.Data, &plan)
				case "cells.json":
					decode(t, f.Data, &cells)
				case "verdict.json":
					want = f.Data
				default:
					t.Fatalf("unexpected file %s", f.Name)
				}
			}
			got, err := json.MarshalIndent(Judge(&plan, cells), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			if *update {
				archive.Files = append(archive.Files[:2], txtar.File{Name: "verdict.json", Data: got})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got, want) {
				t.Errorf("verdict\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}
