package verify

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/evidence/attest"
)

const (
	rawFile     = "cells/rate/n01.r1/1/raw/command.n01/stdout"
	attemptFile = "cells/rate/n01.r1/1/attempt.json"
)

func TestGoodRun(t *testing.T) {
	r := newRig(t, small, nil)
	report := r.verify(t, r.options())
	if got := codes(report); len(got) > 0 || report.Exit != 0 || report.Level != attest.Reproduced {
		t.Fatalf("exit %d, level %s, failures %q", report.Exit, report.Level, got)
	}
	if !report.Derived || report.Verdict.Outcome != evidence.Pass || report.Signer.Key != "operator" || !report.SharedMachine {
		t.Fatalf("%+v", report)
	}
	packed := pack(t, r.dir)
	if report := verifyPath(t, packed, r.options()); report.Exit != 0 || report.Level != attest.Reproduced {
		t.Fatalf("archive: exit %d, level %s, failures %q", report.Exit, report.Level, codes(report))
	}
}

// pack writes the archive of dir.
func pack(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "run"+archive.Suffix)
	file, err := os.Create(name)
	must(t, err)
	must(t, archive.Write(file, os.DirFS(dir), time.Unix(0, 0)))
	must(t, file.Close())
	return name
}

// damage is one thing that is done to a good, signed run.
type damage struct {
	name   string
	do     func(t *testing.T, r rig)
	code   string // that must be among the failures
	path   string // where; a pattern or a prefix
	level  attest.Level
	noPack bool // archive.Write refuses it: it cannot be packed honestly
}

var damages = []damage{
	// By someone without the key.
	{name: "byte changed in a raw file", do: func(t *testing.T, r rig) { r.replace(t, rawFile, "42.5", "42.6") },
		code: attest.CodeFileChanged, path: rawFile},
	{name: "file added", do: func(t *testing.T, r rig) { r.write(t, "run/extra", []byte("x")) },
		code: attest.CodeFileExtra, path: "run/extra", noPack: true},
	{name: "hidden file added", do: func(t *testing.T, r rig) { r.write(t, ".hidden", []byte("x")) },
		code: attest.CodePath, path: ".hidden", noPack: true},
	{name: "empty directory added", do: func(t *testing.T, r rig) { must(t, os.Mkdir(r.path("cells/rate/n03.r1"), 0o755)) },
		code: attest.CodeFileExtra, path: "cells/rate/n03.r1", noPack: true},
	{name: "file removed", do: func(t *testing.T, r rig) { must(t, os.Remove(r.path(rawFile))) },
		code: attest.CodeFileMissing, path: rawFile, noPack: true},
	{name: "file replaced by a link to the same bytes", do: func(t *testing.T, r rig) {
		must(t, os.Rename(r.path(rawFile), filepath.Join(t.TempDir(), "elsewhere")))
		must(t, os.Symlink("../command.n01/stderr", r.path(rawFile)))
	}, code: attest.CodeFileType, path: rawFile, noPack: true},
	{name: "file replaced by a pipe", do: func(t *testing.T, r rig) {
		must(t, os.Remove(r.path(rawFile)))
		must(t, syscall.Mkfifo(r.path(rawFile), 0o644))
	}, code: attest.CodeFileType, path: rawFile, noPack: true},
	{name: "document replaced by a pipe", do: func(t *testing.T, r rig) {
		must(t, os.Remove(r.path(evidence.JournalPath)))
		must(t, syscall.Mkfifo(r.path(evidence.JournalPath), 0o644))
	}, code: attest.CodeFileType, path: evidence.JournalPath, noPack: true},
	{name: "threshold edited", do: func(t *testing.T, r rig) { r.replace(t, evidence.PlanPath, `"min": 40`, `"min": 10`) },
		code: attest.CodeFileChanged, path: evidence.PlanPath},
	{name: "threshold edited, lists redone", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.PlanPath, `"min": 40`, `"min": 10`)
		r.relist(t)
	}, code: attest.CodeSubjects, path: evidence.ManifestPath, level: attest.Intact},
	{name: "verdict edited", do: func(t *testing.T, r rig) { r.replace(t, evidence.VerdictPath, `"passed": 2`, `"passed": 1`) },
		code: attest.CodeFileChanged, path: evidence.VerdictPath},
	{name: "measurements edited", do: func(t *testing.T, r rig) { r.replace(t, evidence.MeasurementsPath, "42.5", "52.5") },
		code: attest.CodeFileChanged, path: evidence.MeasurementsPath},
	{name: "journal line edited", do: func(t *testing.T, r rig) { r.replace(t, evidence.JournalPath, `"seq":3`, `"seq":4`) },
		code: CodeJournal, path: evidence.JournalPath + ":4"},
	{name: "journal line dropped", do: func(t *testing.T, r rig) { r.lines(t, func(l [][]byte) [][]byte { return append(l[:3:3], l[4:]...) }) },
		code: CodeJournal, path: evidence.JournalPath + ":4"},
	{name: "journal lines in another order", do: func(t *testing.T, r rig) {
		r.lines(t, func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l })
	}, code: CodeJournal, path: evidence.JournalPath + ":4"},
	{name: "last journal line dropped", do: func(t *testing.T, r rig) { r.lines(t, func(l [][]byte) [][]byte { return l[:len(l)-1] }) },
		code: CodeJournalOpen, path: evidence.JournalPath},
	{name: "sums line edited", do: func(t *testing.T, r rig) {
		data := r.read(t, evidence.SumsPath)
		data[0] = "0123456789abcdef1"[bytes.IndexByte([]byte("0123456789abcdef"), data[0])+1]
		r.write(t, evidence.SumsPath, data)
	}, code: attest.CodeSumsDiffer, path: ""},
	{name: "manifest removed", do: func(t *testing.T, r rig) { must(t, os.Remove(r.path(evidence.ManifestPath))) },
		code: attest.CodeManifest, path: evidence.ManifestPath, noPack: true},
	{name: "another key", do: func(t *testing.T, r rig) { must(t, attest.Sign(t.Context(), r.dir, anotherSigner(t))) },
		code: attest.CodeKeyUnknown, path: evidence.SignaturePath, level: attest.Intact},
	{name: "no signature", do: func(t *testing.T, r rig) { must(t, os.Remove(r.path(evidence.SignaturePath))) },
		code: attest.CodeNoSignature, path: evidence.SignaturePath, level: attest.Intact},

	// By the operator, who signs again.
	{name: "threshold edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.PlanPath, `"min": 40`, `"min": 10`)
		r.repin(t)
		r.rederive(t)
		r.resign(t)
	}, code: CodePlanDiffers, path: evidence.PlanPath + `#tests["rate"].thresholds["rate"].min`, level: attest.Attested},
	{name: "runbook edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.RunbookDir+"/small.runbook.hcl", "var.floor", "10")
		r.resign(t)
	}, code: CodeSourceDiffers, path: evidence.RunbookDir + "/small.runbook.hcl", level: attest.Attested},
	{name: "verdict edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.VerdictPath, `"margin": 2.5`, `"margin": 3.5`)
		r.resign(t)
	}, code: CodeVerdictDiffers, path: evidence.VerdictPath + `#findings["rate" "rate" "n01"].margin`, level: attest.Attested},
	{name: "measurements edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, evidence.MeasurementsPath, "42.5", "52.5")
		r.resign(t)
	}, code: CodeMeasurementDiffers, path: evidence.MeasurementsPath + ":1", level: attest.Attested},
	{name: "measurement dropped and signed", do: func(t *testing.T, r rig) {
		data := r.read(t, evidence.MeasurementsPath)
		r.write(t, evidence.MeasurementsPath, data[:bytes.IndexByte(data, '\n')+1])
		r.resign(t)
	}, code: CodeMeasurementDiffers, path: evidence.MeasurementsPath + ":2", level: attest.Attested},
	{name: "raw file edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, rawFile, "42.5", "99.5")
		r.resign(t)
	}, code: CodeRawDiffers, path: rawFile, level: attest.Attested},
	{name: "attempt.json edited and signed", do: func(t *testing.T, r rig) {
		r.replace(t, attemptFile, `"number": 1`, `"number": 2`)
		r.resign(t)
	}, code: CodeAttemptDiffers, path: attemptFile, level: attest.Attested},
	{name: "cell dropped and signed", do: func(t *testing.T, r rig) {
		must(t, os.RemoveAll(r.path("cells/rate/n02.r1")))
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			return without(records, func(record evidence.Record) bool { return record.Cell == "rate/n02.r1" })
		})
		r.rederive(t)
		r.resign(t)
	}, code: CodeCellMissing, path: "cells/rate/n02.r1", level: attest.Attested},
	{name: "attempt's end dropped and signed", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			return without(records, func(record evidence.Record) bool {
				return record.Cell == "rate/n02.r1" && record.Event == evidence.EventAttemptEnd
			})
		})
		r.rederive(t)
		r.resign(t)
	}, code: CodeAttemptMissing, path: "cells/rate/n02.r1", level: attest.Attested},
	{name: "first attempt hidden and signed", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			for i := range records {
				if records[i].Cell == "rate/n02.r1" && records[i].Attempt == 1 {
					records[i].Attempt = 2
				}
			}
			return records
		})
		r.resign(t)
	}, code: CodeAttemptMissing, path: evidence.JournalPath, level: attest.Attested},
	{name: "files of an unknown attempt, signed", do: func(t *testing.T, r rig) {
		r.write(t, "cells/rate/n01.r1/2/raw/command.n01/stdout", []byte("rate 1\ndone\n"))
		r.resign(t)
	}, code: CodeAttemptExtra, path: "cells/rate/n01.r1/2/raw/command.n01/stdout", level: attest.Attested},
	{name: "gate edited and signed", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			for i := range records {
				if records[i].Event == evidence.EventGate {
					records[i].Gate.Needed = 1
				}
			}
			return records
		})
		r.resign(t)
	}, code: CodeGateDiffers, path: evidence.JournalPath, level: attest.Attested},
	{name: "cell of another plan in the journal", do: func(t *testing.T, r rig) {
		r.journal(t, func(records []evidence.Record) []evidence.Record {
			last := len(records) - 1
			skip := evidence.Record{Event: evidence.EventSkip, Time: records[last].Time, Cell: "rate/n09.r1", Problem: &evidence.Problem{Class: evidence.ClassNotRun, Detail: "x"}}
			return append(records[:last:last], skip, records[last])
		})
	}, code: CodeCellUnknown, path: evidence.JournalPath, noPack: true}, // the file is larger than its manifest says
}

func without(records []evidence.Record, drop func(evidence.Record) bool) []evidence.Record {
	var kept []evidence.Record
	for _, r := range records {
		if !drop(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// lines edits the journal's lines as they are, unchained.
func (r rig) lines(t *testing.T, change func([][]byte) [][]byte) {
	t.Helper()
	lines := bytes.SplitAfter(bytes.TrimSuffix(r.read(t, evidence.JournalPath), []byte("\n")), []byte("\n"))
	lines[len(lines)-1] = append(bytes.Clone(lines[len(lines)-1]), '\n')
	r.write(t, evidence.JournalPath, bytes.Join(change(lines), nil))
}

func anotherSigner(t *testing.T) attest.Signer {
	t.Helper()
	private, _, err := attest.GenerateKey(nil)
	must(t, err)
	signer, err := attest.LoadSigner(private, nil)
	must(t, err)
	return signer
}

func TestDamages(t *testing.T) {
	good := newRig(t, small, nil)
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			r := good.copied(t)
			d.do(t, r)
			d.check(t, r.verify(t, r.options()))
			if d.noPack {
				return
			}
			d.check(t, verifyPath(t, pack(t, r.dir), r.options()))
		})
	}
}

func (d damage) check(t *testing.T, report *Report) {
	t.Helper()
	if report.Exit != ExitUntrusted || report.Level != d.level {
		t.Errorf("exit %d, level %s: want %d, %s", report.Exit, report.Level, ExitUntrusted, d.level)
	}
	if found := codes(report); !has(found, d.code, d.path) {
		t.Errorf("want %s at %q among %q", d.code, d.path, found)
	}
	for _, s := range report.Steps {
		for _, f := range s.Failures {
			if f.Message == "" {
				t.Errorf("%s has no message", f.Code)
			}
		}
	}
}
