package verify

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
)

// unknownChecks says, a sentence each, which tests of p use a check, or a
// version of one, that this build does not have.
func unknownChecks(p *evidence.Plan, catalog checks.Catalog) []string {
	var sentences []string
	versions := versionsOf(catalog)
	for _, t := range p.Tests {
		version, ok := versions[t.Check]
		switch {
		case !ok:
			sentences = append(sentences, fmt.Sprintf("test %s uses check %s, which this build does not have", t.Name, t.Check))
		case version != t.CheckVersion:
			sentences = append(sentences, fmt.Sprintf("test %s uses version %d of check %s, and this build has version %d",
				t.Name, t.CheckVersion, t.Check, version))
		}
	}
	return sentences
}

// versionsOf is the version of each check. A Spec holds the check's whole
// documentation, which is not built again for each of many tests.
func versionsOf(catalog checks.Catalog) map[string]int {
	versions := make(map[string]int, len(catalog))
	for _, check := range catalog {
		spec := check.Spec()
		versions[spec.Name] = spec.Version
	}
	return versions
}

// asKnown is p with the check versions of this build, so that another version
// of a check can be shown beside the sealed values.
func asKnown(p *evidence.Plan, catalog checks.Catalog) *evidence.Plan {
	known := *p
	known.Tests = slices.Clone(p.Tests)
	versions := versionsOf(catalog)
	for i, t := range known.Tests {
		if version, ok := versions[t.Check]; ok {
			known.Tests[i].CheckVersion = version
		}
	}
	return &known
}

// remeasure is step 5: the journal agrees with plan, attempts and manifest,
// and measuring the raw files again gives the enclosed measurements, line by
// line. It returns what was measured, or nil where nothing could be.
func remeasure(c *content, known runbook.Known) ([]evidence.CellResult, attest.StepResult) {
	s := newStep(stepMeasurements)
	if c.plan == nil {
		s.leave("the plan cannot be read, so nothing says what was to be measured")
		return nil, s.result("")
	}
	catalog := known.Checks
	checkJournal(c, known, s)
	if c.records == nil {
		return nil, s.result("")
	}
	results := checks.Measure(catalog, asKnown(c.plan, catalog), c.records, c.fsys)
	unknown := unknownChecks(c.plan, catalog)
	for _, u := range unknown {
		s.leave("%s", u)
	}
	if c.newer {
		s.leave("the bundle was written by a newer minor version of the schema than this build knows")
	}
	lines := compareMeasurements(c, results, s, len(unknown) > 0 || c.newer)
	return results, s.result(fmt.Sprintf("measurements and facts that derive again from the raw files: %d", lines))
}

// compareMeasurements compares the enclosed lines with those derived now.
// Where the build cannot judge, differences are shown and are no failures.
func compareMeasurements(c *content, results []evidence.CellResult, s *step, onlyShow bool) int {
	derived := evidence.NewDerived(results, evidence.Verdict{}).Measurements
	want := make([]string, 0, len(derived))
	for _, line := range derived {
		text, err := evidence.EncodeLine(line)
		if err != nil {
			s.fail(attest.Failure{Code: CodeMeasurement, Path: evidence.MeasurementsPath, Message: "a derived measurement cannot be written: " + err.Error()})
			return 0
		}
		want = append(want, string(bytes.TrimSuffix(text, []byte("\n"))))
	}
	got, ok := enclosedMeasurements(c, s)
	if !ok {
		return 0
	}
	for _, d := range diffLines(want, got) {
		if onlyShow {
			s.leave("sealed %s, measured now %s", d.Got, d.Want)
			continue
		}
		s.fail(attest.Failure{
			Code: CodeMeasurementDiffers, Path: evidence.MeasurementsPath + d.Path, Message: "the raw files do not give what this line says",
			Expected: d.Want, Actual: d.Got, Next: "the measurements were not derived from these raw files: do not accept the verdict",
		})
	}
	return len(want)
}

// enclosedMeasurements reads the lines of run/measurements.jsonl, each in the
// spelling of this build.
func enclosedMeasurements(c *content, s *step) ([]string, bool) {
	data, err := c.file(evidence.MeasurementsPath)
	if err != nil {
		s.fail(attest.Failure{Code: CodeMeasurement, Path: evidence.MeasurementsPath, Message: "the measurements cannot be read: " + err.Error()})
		return nil, false
	}
	var lines []string
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		var decoded evidence.MeasurementLine
		err := evidence.DecodeStrict(line, &decoded)
		var text []byte
		if err == nil {
			text, err = evidence.EncodeLine(decoded)
		}
		if err == nil && !whole {
			err = fmt.Errorf("the last line has no end")
		}
		if err != nil && !c.newer {
			s.fail(attest.Failure{Code: CodeMeasurement, Path: fmt.Sprintf("%s:%d", evidence.MeasurementsPath, n), Message: "this line cannot be read: " + err.Error()})
			lines = append(lines, string(line))
			continue
		}
		if err != nil {
			text = line
		}
		lines = append(lines, string(bytes.TrimSuffix(text, []byte("\n"))))
	}
	return lines, true
}

// diffLines pairs the lines that differ: with the same lines on both sides
// taken out, the n-th that is left of want belongs to the n-th of got. Path is
// ":<line>" of got, or of where it would stand.
func diffLines(want, got []string) []difference {
	count := make(map[string]int, len(want))
	for _, line := range want {
		count[line]++
	}
	var extra []difference
	for i, line := range got {
		if count[line] > 0 {
			count[line]--
			continue
		}
		extra = append(extra, difference{Path: fmt.Sprintf(":%d", i+1), Want: absent, Got: line})
	}
	var lost []difference
	for i := len(want) - 1; i >= 0; i-- {
		if count[want[i]] > 0 {
			count[want[i]]--
			lost = append(lost, difference{Path: fmt.Sprintf(":%d", i+1), Want: want[i], Got: absent})
		}
	}
	for i := 0; i < len(extra) && len(lost) > 0; i++ {
		last := len(lost) - 1
		extra[i].Want = lost[last].Want
		lost = lost[:last]
	}
	for i := len(lost) - 1; i >= 0; i-- {
		extra = append(extra, lost[i])
	}
	if len(extra) == 0 {
		for i := range want {
			if want[i] != got[i] {
				return []difference{{Path: fmt.Sprintf(":%d", i+1), Want: want[i], Got: got[i]}}
			}
		}
	}
	return extra[:min(len(extra), maxDifferences)]
}
