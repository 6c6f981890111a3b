package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// collector reads the steps of one attempt and keeps what Measure will
// return: measurements, facts, and a problem for everything that it could not
// read to its proven end.
type collector struct {
	view         evidence.CellView
	raw          fs.FS
	measurements []evidence.Measurement
	facts        []evidence.Fact
	problems     []error
	// asked is what a step on a node must have run.
	asked func(step, node string) commandLine
}

func newCollector(c evidence.CellView, raw fs.FS, asked func(step, node string) commandLine) *collector {
	return &collector{view: c, raw: raw, asked: asked}
}

func (m *collector) result() ([]evidence.Measurement, []evidence.Fact, error) {
	return m.measurements, m.facts, errors.Join(m.problems...)
}

// report adds a problem; step and node may be empty for the whole cell.
func (m *collector) report(node, step string, class evidence.Class, format string, args ...any) {
	if m.view.Attempt.Cut && class == evidence.ClassOutputCut {
		class = evidence.ClassCut // we know who cut it
	}
	m.problems = append(m.problems, &evidence.Problem{
		Node: node, Step: step, Class: class, Detail: fmt.Sprintf(format, args...),
	})
}

// reading is a number that a tool printed, or the token that it printed
// instead, with its place.
type reading struct {
	value   float64
	missing string
	source  string
}

// dividedBy converts to a larger unit; a missing value stays missing.
func (r reading) dividedBy(factor float64) reading {
	r.value /= factor
	return r
}

func (m *collector) measure(metric Metric, subject evidence.Subject, labels map[string]string, r reading) {
	if r.missing != "" {
		r.value = 0
	}
	m.measurements = append(m.measurements, evidence.Measurement{
		Metric: metric.Name, Unit: metric.Unit, Value: r.value, Missing: r.missing,
		Subject: subject, Labels: labels, Source: r.source,
	})
}

// factLimit bounds a fact, in bytes: a longer text is not a version or a
// model but the wrong output.
const factLimit = 4096

func (m *collector) fact(name string, node string, value, missing, source string) {
	value = strings.ToValidUTF8(strings.TrimSpace(value), "\uFFFD")
	switch {
	case missing != "":
		value = ""
	case value == "":
		missing = "(empty)"
	case len(value) > factLimit:
		value, missing = "", fmt.Sprintf("(%d bytes, more than %d)", len(value), factLimit)
	}
	m.facts = append(m.facts, evidence.Fact{
		Name: name, Value: value, Missing: missing, Subject: evidence.Subject(node), Source: source,
	})
}

// stepOutput is what one step left.
type stepOutput struct {
	step, node string
	exit       evidence.Exit
	stdout     []byte
	stderr     []byte
}

// at is the Source of a place in the step's stdout.
func (o stepOutput) at(format string, args ...any) string {
	return evidence.StepDir(o.step, o.node) + "/stdout:" + fmt.Sprintf(format, args...)
}

// step reads a step that must have run what was asked and have ended by itself
// with one of the exit codes (0 if none is given), whole and uncapped.
// Otherwise it reports a problem and returns false; what could be read is
// returned all the same, unless another command printed it.
func (m *collector) step(step, node string, codes ...int) (stepOutput, bool) {
	if len(codes) == 0 {
		codes = []int{0}
	}
	out := stepOutput{step: step, node: node}
	exit, _, ok := m.exit(step, node)
	out.exit = exit
	if !ok && exit.Class == "" {
		return out, false
	}
	stdout, okOut := m.stream(step, node, "stdout", exit.StdoutBytes)
	stderr, okErr := m.stream(step, node, "stderr", exit.StderrBytes)
	out.stdout, out.stderr = stdout, stderr
	if !ok || !okOut || !okErr {
		return out, false
	}
	switch {
	case slices.Contains(codes, *exit.Code):
		return out, true
	case unstarted(out):
		m.report(node, step, evidence.ClassToolMissing, "exit status %d%s", *exit.Code, firstLine(stderr))
	default:
		m.report(node, step, evidence.ClassExit, "exit status %d, expected %s%s", *exit.Code, joinInts(codes, " or "), firstLine(stderr))
	}
	return out, false
}

// unstarted reports whether env could not start the program that it was to
// start: env ends with 126 or 127 then, and says why (env(1) of coreutils).
// Without env before it, the executor would say so.
func unstarted(out stepOutput) bool {
	code := *out.exit.Code
	return (code == 126 || code == 127) && out.exit.Argv[0] == "env" && len(out.stdout) == 0 && bytes.HasPrefix(out.stderr, []byte("env: "))
}

// exit reads a step's exit.json and reports what is wrong with it. The Exit
// has no class if it could not be read, or if another command ran than was
// asked; only then own is false, and the output is none of the step's.
func (m *collector) exit(step, node string) (exit evidence.Exit, own, ok bool) {
	dir := evidence.StepDir(step, node)
	data, err := readWhole(m.raw, dir+"/exit.json")
	if tooLong := (*tooLongError)(nil); errors.As(err, &tooLong) {
		m.report(node, step, evidence.ClassOutputCapped, "exit.json has %v", tooLong)
		return evidence.Exit{}, true, false
	}
	if err != nil {
		class, why := m.absent(node)
		if _, statErr := fs.Stat(m.raw, dir); statErr != nil {
			m.report(node, step, class, "the step was not run%s", why)
		} else {
			if class == evidence.ClassNotRun {
				class = evidence.ClassOutputCut
			}
			m.report(node, step, class, "the step has no exit.json, so its output has no proven end%s", why)
		}
		return evidence.Exit{}, true, false
	}
	if err := evidence.DecodeStrict(data, &exit); err != nil {
		m.report(node, step, evidence.ClassOutputCut, "exit.json: %v", err)
		return evidence.Exit{}, true, false
	}
	if difference := m.asked(step, node).difference(exit.Argv); difference != "" {
		m.report(node, step, evidence.ClassUnparsable, "another command ran: %s", difference)
		return evidence.Exit{}, false, false
	}
	switch {
	case !exit.Class.Known():
		m.report(node, step, evidence.ClassUnparsable, "exit.json has the unknown class %q", exit.Class)
	case exit.Class != evidence.ClassOK && exit.Class != evidence.ClassExit:
		m.problems = append(m.problems, exit.Problem(node, step))
	case exit.Code == nil:
		m.report(node, step, evidence.ClassExit, "ended without an exit status")
	case exit.Truncated:
		m.report(node, step, evidence.ClassOutputCapped, "the output was longer than the cap")
	case exit.HeldOpen:
		m.report(node, step, evidence.ClassOutputHeldOpen, "a process that outlived the command still held its output")
	case exit.End.Before(exit.Start):
		m.report(node, step, evidence.ClassUnparsable, "exit.json ends before it starts")
	default:
		return exit, true, true
	}
	if exit.Class == "" {
		exit.Class = evidence.ClassUnparsable
	}
	return exit, true, false
}

// absent is the class of something that is not there: that of the attempt's
// own problem with the node, so that a lost node is not blamed on our output.
func (m *collector) absent(node string) (class evidence.Class, why string) {
	for _, p := range m.view.Attempt.Problems {
		if (p.Node == node || p.Node == "") && p.Class != evidence.ClassOK {
			return p.Class, ": " + p.Detail
		}
	}
	if m.view.Attempt.Cut {
		return evidence.ClassCut, ": the attempt was cut"
	}
	return evidence.ClassNotRun, ""
}

// wholeLimit is the most that is read of one file at once, in bytes. The
// longest that a check reads is a kernel log, which is a ring of some MiB, or
// the records of a probe; and what a parser makes of a text takes many times
// its length.
const wholeLimit = 64 << 20

// tooLongError is a file over wholeLimit; its text is what such a file has.
type tooLongError struct{ size int64 }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("%d bytes, and at most %d are read at once", e.size, wholeLimit)
}

func readWhole(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > wholeLimit {
		return nil, &tooLongError{info.Size()}
	}
	return fs.ReadFile(fsys, name)
}

func (m *collector) stream(step, node, name string, want int64) ([]byte, bool) {
	data, err := readWhole(m.raw, evidence.StepDir(step, node)+"/"+name)
	if tooLong := (*tooLongError)(nil); errors.As(err, &tooLong) {
		m.report(node, step, evidence.ClassOutputCapped, "%s has %v", name, tooLong)
		return nil, false
	}
	if err != nil {
		m.report(node, step, evidence.ClassOutputCut, "%s is missing", name)
		return nil, false
	}
	if int64(len(data)) != want {
		m.report(node, step, evidence.ClassOutputCut, "%s has %d bytes and exit.json says %d", name, len(data), want)
		return data, false
	}
	return data, true
}

// wholeLines reports whether data, if there is any, ends with a line end. A
// text that stops within a line was cut.
func (m *collector) wholeLines(out stepOutput, name string, data []byte) bool {
	if len(data) == 0 || data[len(data)-1] == '\n' {
		return true
	}
	m.report(out.node, out.step, evidence.ClassOutputCut, "%s ends within a line", name)
	return false
}

// json decodes stdout, which must be one whole JSON document.
func (m *collector) json(out stepOutput) (any, bool) {
	root, err := parseJSON(out.stdout)
	if err != nil {
		m.report(out.node, out.step, jsonClass(out.stdout, err), "stdout is not one whole JSON document: %v", err)
		return nil, false
	}
	return root, true
}

// jsonClass tells output that stops early from output that is something else.
func jsonClass(data []byte, err error) evidence.Class {
	var syntax *json.SyntaxError
	if errors.Is(err, io.ErrUnexpectedEOF) || (errors.As(err, &syntax) && syntax.Offset >= int64(len(data))) {
		return evidence.ClassOutputCut
	}
	return evidence.ClassUnparsable
}

// firstLine is ": " and the first line of a tool's complaint, or nothing.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" {
		return ""
	}
	return ": " + token(line)
}

func joinInts(values []int, separator string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, separator)
}

// metricNamed finds a metric by name among those that a check declares. A
// check asks only for its own, so a name that is not there is a defect of the
// check, which MeasureAttempt reports as one.
func metricNamed(metrics []Metric, name string) Metric {
	for _, metric := range metrics {
		if metric.Name == name {
			return metric
		}
	}
	panic(fmt.Sprintf("metric %q is not declared", name))
}
