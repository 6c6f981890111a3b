package evidence

import (
	"strings"
	"testing"
	"testing/fstest"
)

func allMeasurements(t *testing.T, b *Bundle) []MeasurementLine {
	t.Helper()
	var lines []MeasurementLine
	for line, err := range b.Measurements() {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

const measurementLine = `{"cell":"reads/n1.r1","attempt":1,"measurement":{"metric":"iops","unit":"1/s","value":5,"subject":"n1","source":"x"}}`

func TestMeasurementsEndAtTheFirstDamage(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"torn":           {measurementLine + "\n" + measurementLine[:20], "run/measurements.jsonl line 2: the line has no end"},
		"not JSON":       {measurementLine + "\nx\n" + measurementLine + "\n", "run/measurements.jsonl line 2: line 1: "},
		"neither of two": {measurementLine + "\n{\"cell\":\"a\",\"attempt\":1}\n", "run/measurements.jsonl line 2: want one measurement or one fact"},
	} {
		b := &Bundle{Sealed: true, FS: fstest.MapFS{MeasurementsPath: {Data: []byte(c.file)}}}
		lines, failed := 0, ""
		for line, err := range b.Measurements() {
			switch {
			case failed != "":
				t.Fatalf("%s: something follows the error", name)
			case err != nil:
				failed = err.Error()
			case line.Measurement.Value == 5:
				lines++
			}
		}
		if lines != 1 || !strings.HasPrefix(failed, c.want) {
			t.Errorf("%s: %d lines, then %q, want 1 and %q", name, lines, failed, c.want)
		}
	}
}

func TestMeasurementsOfARunThatIsNotSealed(t *testing.T) {
	b := &Bundle{FS: fstest.MapFS{}}
	for _, err := range b.Measurements() {
		if err == nil || !strings.Contains(err.Error(), "not sealed") {
			t.Errorf("got %v", err)
		}
	}
	b.Results = []CellResult{{Cell: Cell{ID: "reads/n1.r1"}, Attempts: []MeasuredAttempt{{
		Attempt: Attempt{Number: 2}, Measurements: []Measurement{{Metric: "iops"}}, Facts: []Fact{{Name: "fio_version"}},
	}}}}
	lines := allMeasurements(t, b)
	if len(lines) != 2 || lines[0].Attempt != 2 || lines[0].Measurement.Metric != "iops" || lines[1].Fact.Name != "fio_version" {
		t.Errorf("lines %+v", lines)
	}
}

func TestMeasurementsCanBeLeftEarly(t *testing.T) {
	b := &Bundle{Sealed: true, FS: fstest.MapFS{MeasurementsPath: {Data: []byte(measurementLine + "\n" + measurementLine + "\n")}}}
	seen := 0
	for range b.Measurements() {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("%d lines", seen)
	}
}

func TestManifestDigestAndApprovalFiles(t *testing.T) {
	b := &Bundle{Sealed: true, FS: fstest.MapFS{
		ManifestPath: {Data: []byte("m")}, "approvals/01-ops.sigstore.json": {}, "approvals/notes.txt": {},
	}}
	if digest, err := b.ManifestDigest(); err != nil || digest != DigestOf([]byte("m")) {
		t.Errorf("digest %s, %v", digest, err)
	}
	if got := b.ApprovalFiles(); len(got) != 1 || got[0] != "approvals/01-ops.sigstore.json" {
		t.Errorf("approvals %q", got)
	}
	b.Sealed = false
	if digest, err := b.ManifestDigest(); err != nil || digest != "" {
		t.Errorf("a run that is not sealed: digest %q, %v", digest, err)
	}
	b = &Bundle{Sealed: true, FS: fstest.MapFS{}}
	if _, err := b.ManifestDigest(); err == nil {
		t.Error("no manifest, and no error")
	}
}
