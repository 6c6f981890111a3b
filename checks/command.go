package checks

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// command runs any tool on each node and reads what the runbook names out of
// its output.
type command struct{}

const commandStep = "command"

type commandParams struct {
	Argv       []string    `json:"argv"`
	ExpectExit int         `json:"expect_exit"`
	Proof      string      `json:"proof"`
	Metrics    []extractor `json:"metric"`
	Facts      []extractor `json:"fact"`
}

// extractor says where in the output one number or text stands.
type extractor struct {
	Name        string   `json:"name"`
	Unit        string   `json:"unit"`
	Doc         string   `json:"doc"`
	Regex       string   `json:"regex"`
	JSON        string   `json:"json"`
	Column      string   `json:"column"`
	Row         string   `json:"row"`
	Count       string   `json:"count"`
	Label       string   `json:"label"`
	Values      []string `json:"values"`
	Accumulates bool     `json:"accumulates"`
	Resolution  float64  `json:"resolution"`
}

// labelMark stands for the label's value in regex, json, row and count.
const labelMark = "{label}"

func (command) Spec() Spec {
	place := []evidence.Param{
		{Name: "regex", Type: evidence.ParamString, Doc: "A regular expression (RE2) with one group, which is the value. It must match exactly once in the whole output; ^ and $ match at lines."},
		{Name: "json", Type: evidence.ParamString, Doc: "A JSON pointer such as /a/0/b, or a dotted path such as a.0.b; the whole output must be one JSON document."},
		{Name: "column", Type: evidence.ParamString, Doc: "A column of a CSV table, by its heading."},
		{Name: "row", Type: evidence.ParamString, Doc: "Which row of the table, as \"heading=value\". Without it the table must have one row."},
	}
	return Spec{
		Name: "command",
		Doc: "Runs a command on every node, each alone, and reads numbers and texts out of its standard output. " +
			"The command must end with the expected exit status, and the last line that is not empty, and no line before it, must match proof: " +
			"the tool's own closing line shows that the output was not cut. Without that nothing is measured. Standard error is kept and not read.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode},
		Loads:   []string{"cpu"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "argv", Type: evidence.ParamArgv, Required: true, Doc: "The command and its arguments. There is no shell."},
			{Name: "expect_exit", Type: evidence.ParamNumber, Whole: true, Default: 0, Doc: "The exit status of a run that worked."},
			{Name: "proof", Type: evidence.ParamString, Required: true, Doc: "A regular expression (RE2) that matches the tool's own closing line and no line before it."},
			{Name: "metric", Type: evidence.ParamBlocks, Doc: "A number to read; exactly one of regex, json, column and count.",
				Nested: append([]evidence.Param{
					{Name: "unit", Type: evidence.ParamString, Required: true, Doc: "The unit that the tool prints; it is never converted."},
					{Name: "doc", Type: evidence.ParamString, Doc: "What the number is."},
					{Name: "count", Type: evidence.ParamString, Doc: "A regular expression (RE2); the metric is the number of lines that it matches, which may be zero."},
					{Name: "label", Type: evidence.ParamString, Doc: "The name of a label, for a tool that prints one number for each size or device. " + labelMark + " in regex, json, row and count stands for each of values."},
					{Name: "values", Type: evidence.ParamStrings, Doc: "The values of the label; each must be measured."},
					{Name: "accumulates", Type: evidence.ParamBool, Default: false, Doc: "It only grows with time, so that a breach of max stands even if the run was cut."},
					{Name: "resolution", Type: evidence.ParamNumber, Default: 0, Doc: "The smallest step that the tool prints, in the unit."},
				}, place...)},
			{Name: "fact", Type: evidence.ParamBlocks, Doc: "A text to read; exactly one of regex, json and column.", Nested: place},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readCommandParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readCommandParams(p)
			if err != nil {
				return nil
			}
			metrics := make([]Metric, len(params.Metrics))
			for i, e := range params.Metrics {
				metrics[i] = e.metric()
			}
			return metrics
		},
		Facts: func(p json.RawMessage) []FactSpec {
			params, err := readCommandParams(p)
			if err != nil {
				return nil
			}
			facts := make([]FactSpec, len(params.Facts))
			for i, e := range params.Facts {
				facts[i] = FactSpec{Name: e.Name, Level: "node", Doc: "Read from the command's output."}
			}
			return facts
		},
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			return nodeSubjects(nodes)
		},
	}
}

func readCommandParams(p json.RawMessage) (commandParams, error) {
	var params commandParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return commandParams{}, fmt.Errorf("parameters of command: %w", err)
	}
	return params, nil
}

func (e extractor) metric() Metric {
	metric := Metric{
		Name: e.Name, Unit: e.Unit, Level: "node", Doc: e.Doc,
		Accumulates: e.Accumulates, Resolution: e.Resolution,
	}
	if metric.Doc == "" {
		metric.Doc = "Read from the command's output."
	}
	if e.Label != "" {
		metric.Labels = []Label{{Name: e.Label, Values: slices.Clone(e.Values)}}
	}
	return metric
}

func (p commandParams) validate() error {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return errors.New("argv is empty: name a command")
	}
	if p.ExpectExit < 0 || p.ExpectExit > 255 {
		return fmt.Errorf("expect_exit is %d: an exit status is 0 to 255", p.ExpectExit)
	}
	proof, err := regexp.Compile(p.Proof)
	if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if proof.MatchString("") {
		return fmt.Errorf("proof %q matches an empty line, so it proves nothing: match the tool's own closing line", p.Proof)
	}
	seen := make(map[string]bool)
	for _, list := range []struct {
		kind string
		all  []extractor
	}{{"metric", p.Metrics}, {"fact", p.Facts}} {
		for _, e := range list.all {
			if seen[e.Name] {
				return fmt.Errorf("%s %q: the name is taken: metrics and facts share their names", list.kind, e.Name)
			}
			seen[e.Name] = true
			if err := e.validate(list.kind == "metric"); err != nil {
				return fmt.Errorf("%s %q: %w", list.kind, e.Name, err)
			}
		}
	}
	return nil
}

func (e extractor) validate(metric bool) error {
	var ways []string
	for _, way := range []struct{ name, text string }{{"regex", e.Regex}, {"json", e.JSON}, {"column", e.Column}, {"count", e.Count}} {
		if way.text != "" {
			ways = append(ways, way.name)
		}
	}
	switch {
	case len(ways) != 1 && metric:
		return fmt.Errorf("has %d of regex, json, column and count: give exactly one", len(ways))
	case len(ways) != 1:
		return fmt.Errorf("has %d of regex, json and column: give exactly one", len(ways))
	case metric && e.Unit == "":
		return errors.New("has no unit: \"1\" is the unit of a plain number")
	case e.Resolution < 0:
		return errors.New("resolution is negative: give the tool's smallest step")
	case (e.Label == "") != (len(e.Values) == 0):
		return errors.New("label and values belong together: give both or none")
	}
	if e.Row != "" {
		if e.Column == "" {
			return errors.New("row belongs to column: give both")
		}
		if heading, _, ok := strings.Cut(e.Row, "="); !ok || heading == "" {
			return fmt.Errorf("row is %q: want the form \"heading=value\"", e.Row)
		}
	}
	if e.Label != "" && !strings.Contains(e.Regex+e.JSON+e.Row+e.Count, labelMark) {
		return fmt.Errorf("%s stands nowhere, so every value of the label would be measured alike: put it in regex, json, row or count", labelMark)
	}
	values := e.Values
	if len(values) == 0 {
		values = []string{""}
	}
	for i, value := range values {
		if e.Label != "" && (value == "" || slices.Contains(values[:i], value)) {
			return fmt.Errorf("values has %q empty or twice", value)
		}
		if e.Regex != "" {
			pattern, err := e.pattern(e.Regex, value)
			if err != nil {
				return fmt.Errorf("regex: %w", err)
			}
			if pattern.NumSubexp() != 1 {
				return fmt.Errorf("regex has %d groups: exactly one is the value; write (?:…) for a group that is not", pattern.NumSubexp())
			}
		}
		if e.Count != "" {
			if _, err := e.pattern(e.Count, value); err != nil {
				return fmt.Errorf("count: %w", err)
			}
		}
	}
	return nil
}

// pattern compiles a regular expression in which ^ and $ match at lines.
func (e extractor) pattern(text, label string) (*regexp.Regexp, error) {
	if e.Label != "" {
		text = strings.ReplaceAll(text, labelMark, regexp.QuoteMeta(label))
	}
	// By itself first: an error must quote what was written, and a bracket too
	// many must not close the group that is put around it.
	if _, err := regexp.Compile(text); err != nil {
		return nil, err
	}
	return regexp.Compile("(?m:" + text + ")")
}

// argv is what the one step runs on every node.
func (p commandParams) argv() []string { return p.Argv }

func (command) Drive(ctx context.Context, b Bench) error {
	var params commandParams
	if err := b.Params(&params); err != nil {
		return err
	}
	return b.ExecAll(ctx, commandStep, b.Nodes(), func(node string) Command {
		return Command{Node: node, Argv: params.argv()}
	})
}

func (command) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readCommandParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	proof, err := regexp.Compile(params.Proof)
	if err != nil {
		return nil, nil, err
	}
	m := newCollector(c, raw, func(string, string) commandLine { return exactly(params.argv()) })
	for _, node := range c.Nodes {
		out, ok := m.step(commandStep, node, params.ExpectExit)
		if !ok || !m.proved(out, proof) {
			continue
		}
		t := commandText{out: out}
		for _, e := range params.Metrics {
			metric := e.metric()
			if e.Label == "" {
				m.measure(metric, evidence.Subject(node), nil, t.number(e, ""))
			}
			for _, value := range e.Values {
				m.measure(metric, evidence.Subject(node), map[string]string{e.Label: value}, t.number(e, value))
			}
		}
		for _, e := range params.Facts {
			text, missing, source := t.text(e, "")
			m.fact(e.Name, node, text, missing, source)
		}
	}
	return m.result()
}

// proved reports whether stdout ends with a whole line that matches proof as
// no line before it does. Then every text that was cut shows: its last line
// either lacks its end or is not the closing one.
func (m *collector) proved(out stepOutput, proof *regexp.Regexp) bool {
	if len(out.stdout) == 0 {
		m.report(out.node, out.step, evidence.ClassOutputCut, "stdout is empty and proof %q matches nothing", proof)
		return false
	}
	if !m.wholeLines(out, "stdout", out.stdout) {
		return false
	}
	lines := strings.Split(string(bytes.TrimRight(out.stdout, "\r\n")), "\n")
	last := len(lines) - 1
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case i == last && !proof.MatchString(line):
			m.report(out.node, out.step, evidence.ClassOutputCut, "the last line %q does not match proof %q", token(line), proof)
			return false
		case i < last && proof.MatchString(line):
			m.report(out.node, out.step, evidence.ClassUnparsable, "proof %q matches line %d already, so it does not show where the output ends: match the closing line alone", proof, i+1)
			return false
		}
	}
	return true
}

// commandText reads values out of one proved output.
type commandText struct {
	out  stepOutput
	root any // the JSON document, once decoded
	bad  error
	done bool
}

func (t *commandText) document() (any, error) {
	if !t.done {
		t.root, t.bad = parseJSON(t.out.stdout)
		t.done = true
	}
	return t.root, t.bad
}

func (t *commandText) number(e extractor, label string) reading {
	if e.Count != "" {
		return t.count(e, label)
	}
	if e.JSON != "" {
		value, found, source, missing := t.jsonValue(e, label)
		if missing != "" {
			return reading{missing: missing, source: source}
		}
		number, missing := jsonNumber(value, found)
		return reading{number, missing, source}
	}
	text, missing, source := t.text(e, label)
	if missing != "" {
		return reading{missing: missing, source: source}
	}
	number, missing := parseNumber(text)
	return reading{number, missing, source}
}

func (t *commandText) count(e extractor, label string) reading {
	pattern, err := e.pattern(e.Count, label)
	if err != nil {
		return reading{missing: token(err.Error()), source: t.out.at("")}
	}
	lines := bytes.SplitAfter(t.out.stdout, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	count := 0
	for _, line := range lines {
		if pattern.Match(bytes.TrimRight(line, "\r\n")) {
			count++
		}
	}
	return reading{value: float64(count), source: t.out.at("1-%d", len(lines))}
}

func (t *commandText) jsonValue(e extractor, label string) (value any, found bool, source, missing string) {
	tokens := pointerTokens(e.JSON)
	if e.Label != "" {
		for i := range tokens {
			tokens[i] = strings.ReplaceAll(tokens[i], labelMark, label)
		}
	}
	source = t.out.at("%s", pointerText(tokens...))
	root, err := t.document()
	if err != nil {
		return nil, false, source, token(fmt.Sprintf("(not one JSON document: %v)", err))
	}
	value, found = lookup(root, tokens...)
	return value, found, source, ""
}

func (t *commandText) text(e extractor, label string) (text, missing, source string) {
	switch {
	case e.JSON != "":
		value, found, source, missing := t.jsonValue(e, label)
		if missing != "" {
			return "", missing, source
		}
		text, missing := jsonText(value, found)
		return text, missing, source
	case e.Column != "":
		return t.cell(e, label)
	}
	pattern, err := e.pattern(e.Regex, label)
	if err != nil {
		return "", token(err.Error()), t.out.at("1")
	}
	matches := pattern.FindAllSubmatchIndex(t.out.stdout, 2)
	switch {
	case len(matches) == 0:
		return "", "(no match)", t.out.at("1")
	case len(matches) > 1:
		return "", "(more than one match)", t.out.at("%d", lineOf(t.out.stdout, matches[1][0]))
	case matches[0][2] < 0:
		return "", "(the group is not part of the match)", t.out.at("%d", lineOf(t.out.stdout, matches[0][0]))
	}
	group := matches[0][2:4]
	return string(t.out.stdout[group[0]:group[1]]), "", t.out.at("%d", lineOf(t.out.stdout, group[0]))
}

func lineOf(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

// cell reads a value of a CSV table: its heading is the first line that has
// the column, its rows are the lines below with as many fields.
func (t *commandText) cell(e extractor, label string) (text, missing, source string) {
	reader := csv.NewReader(bytes.NewReader(t.out.stdout))
	reader.FieldsPerRecord = -1
	reader.LazyQuotes = true
	reader.TrimLeadingSpace = true
	column, key := -1, -1
	heading, value, keyed := strings.Cut(e.Row, "=")
	if e.Label != "" {
		value = strings.ReplaceAll(value, labelMark, label)
	}
	width, rows, line := 0, 0, 1
	for {
		record, err := reader.Read()
		if err != nil {
			break
		}
		if column < 0 {
			if column = slices.Index(record, e.Column); column < 0 {
				continue
			}
			width = len(record)
			line, _ = reader.FieldPos(column)
			if slices.Index(record[column+1:], e.Column) >= 0 {
				return "", "(the heading is there twice)", t.out.at("%d", line)
			}
			if key = slices.Index(record, heading); keyed && key < 0 {
				return "", token(fmt.Sprintf("(no column %s)", heading)), t.out.at("%d", line)
			}
			continue
		}
		if len(record) != width {
			break
		}
		if keyed && record[key] != value {
			continue
		}
		if rows++; rows > 1 {
			return "", "(more than one row)", t.out.at("%s", strconv.Itoa(line))
		}
		text = record[column]
		line, _ = reader.FieldPos(column)
	}
	switch {
	case column < 0:
		return "", token(fmt.Sprintf("(no column %s)", e.Column)), t.out.at("1")
	case rows == 0:
		return "", "(no row)", t.out.at("%d", line)
	}
	return text, "", t.out.at("%d", line)
}
