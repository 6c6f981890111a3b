package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/reports"
)

const mediaChecks = "application/vnd.rackproof.checks.v1+json"

// checkList is what `checks --json` prints.
type checkList struct {
	MediaType string      `json:"mediaType"`
	Minor     int         `json:"minor"`
	Checks    []checkInfo `json:"checks"`
}

type checkInfo struct {
	Name       string                `json:"name"`
	Version    int                   `json:"version"`
	Doc        string                `json:"doc"`
	Scopes     []evidence.Scope      `json:"scopes"`
	Loads      []string              `json:"loads"`
	FleetLoads []string              `json:"fleetLoads,omitempty"`
	Hazard     string                `json:"hazard,omitempty"`
	Needs      []evidence.Capability `json:"needs"`
	Params     []paramInfo           `json:"params"`
	Metrics    []metricInfo          `json:"metrics"`
	Facts      []factInfo            `json:"facts"`
}

type paramInfo struct {
	Name     string             `json:"name"`
	Type     evidence.ParamType `json:"type"`
	Unit     string             `json:"unit,omitempty"`
	Required bool               `json:"required"`
	Default  any                `json:"default,omitempty"`
	Enum     []string           `json:"enum,omitempty"`
	Doc      string             `json:"doc"`
	Params   []paramInfo        `json:"params,omitempty"`
}

type metricInfo struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	Level  string   `json:"level"`
	Labels []string `json:"labels,omitempty"`
	When   string   `json:"when,omitempty"` // the parameter that it needs, where the defaults do not give it
	Doc    string   `json:"doc"`
}

type factInfo struct {
	Name  string `json:"name"`
	Level string `json:"level"`
	Doc   string `json:"doc"`
}

func newChecksCmd(p *Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "checks [NAME]",
		Short: "List the checks of this build, or explain one",
		Long:  "List what can be measured; with a name, its parameters, metrics and facts.",
		Example: `  rackproof checks
  rackproof checks storage_fio --json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range checks.Builtin() {
				names = append(names, c.Spec().Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error { return runChecks(p, args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runChecks(p *Process, args []string, asJSON bool) error {
	list := checkList{MediaType: mediaChecks, Checks: []checkInfo{}}
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, check := range checks.Builtin() {
		spec := check.Spec()
		names.AddCommand(&cobra.Command{Use: spec.Name, Run: func(*cobra.Command, []string) {}})
		if len(args) == 0 || args[0] == spec.Name {
			list.Checks = append(list.Checks, describeCheck(spec))
		}
	}
	if len(list.Checks) == 0 {
		return fail(ExitUsage, fmt.Errorf("this build has no check %q", args[0]), didYouMean(names.SuggestionsFor(args[0]), "rackproof checks lists them"))
	}
	if asJSON {
		return printJSON(p.Stdout, list)
	}
	out := newLines(p.Stdout)
	if len(args) == 1 {
		list.Checks[0].show(out)
		return out.Err
	}
	rows := [][]string{{"CHECK", "VERSION", "WHAT IT MEASURES"}}
	for _, c := range list.Checks {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Version), firstSentence(c.Doc)})
	}
	out.Table(rows)
	return out.Err
}

func firstSentence(doc string) string {
	if i := strings.Index(doc, ". "); i >= 0 {
		return doc[:i+1]
	}
	return doc
}

// describeCheck shows a check with every metric and fact that some value of
// one parameter gives, those of the defaults first.
func describeCheck(spec checks.Spec) checkInfo {
	info := checkInfo{
		Name: spec.Name, Version: spec.Version, Doc: spec.Doc, Scopes: spec.Scopes, Loads: spec.Loads, FleetLoads: spec.FleetLoads, Hazard: spec.Hazard, Needs: spec.Needs,
		Params: describeParams(spec.Params), Metrics: []metricInfo{}, Facts: []factInfo{},
	}
	seen := make(map[string]bool)
	for _, v := range variants(spec.Params) {
		if spec.Metrics != nil {
			for _, m := range spec.Metrics(v.params) {
				if seen[m.Name] {
					continue
				}
				seen[m.Name] = true
				var labels []string
				for _, l := range m.Labels {
					labels = append(labels, l.Name)
				}
				info.Metrics = append(info.Metrics, metricInfo{Name: m.Name, Unit: m.Unit, Level: m.Level, Labels: labels, When: v.when, Doc: m.Doc})
			}
		}
		if spec.Facts != nil {
			for _, f := range spec.Facts(v.params) {
				if !seen[f.Name] {
					seen[f.Name] = true
					info.Facts = append(info.Facts, factInfo{Name: f.Name, Level: f.Level, Doc: f.Doc})
				}
			}
		}
	}
	return info
}

// variant is the parameters of a check at their defaults, but for one.
type variant struct {
	params json.RawMessage
	when   string // that one and its value; empty for the defaults
}

func variants(params []evidence.Param) []variant {
	values := make(map[string]any)
	for _, p := range params {
		if p.Default != nil {
			values[p.Name] = p.Default
		}
	}
	all := []variant{{params: object(values)}}
	for _, p := range params {
		for _, value := range others(p) {
			changed := maps.Clone(values)
			changed[p.Name] = value
			text, err := json.Marshal(value)
			when := p.Name + " = " + string(text)
			if err != nil || p.Type == evidence.ParamArgv || p.Type == evidence.ParamNumbers {
				when = p.Name // any value, or any longer list
			}
			all = append(all, variant{object(changed), when})
		}
	}
	return all
}

func object(values map[string]any) json.RawMessage {
	text, err := json.Marshal(values)
	if err != nil {
		return json.RawMessage("{}")
	}
	return text
}

// others are values of a parameter that may make a check report something
// else than its default does.
func others(p evidence.Param) []any {
	switch p.Type {
	case evidence.ParamBool:
		on, _ := p.Default.(bool)
		return []any{!on}
	case evidence.ParamNumbers:
		return []any{[]int{1, 2}}
	case evidence.ParamArgv:
		return []any{[]string{"true"}}
	}
	var values []any
	for _, word := range p.Enum {
		values = append(values, word)
	}
	return values
}

func describeParams(params []evidence.Param) []paramInfo {
	list := []paramInfo{}
	for _, p := range params {
		list = append(list, paramInfo{
			Name: p.Name, Type: p.Type, Unit: p.Unit, Required: p.Required, Default: p.Default, Enum: p.Enum, Doc: p.Doc, Params: describeParams(p.Nested),
		})
	}
	return list
}

func (c checkInfo) show(out *reports.Printer) {
	out.Line("%s, version %d", c.Name, c.Version)
	out.Line("")
	out.Line("%s", c.Doc)
	out.Line("")
	scopes := make([]string, len(c.Scopes))
	for i, s := range c.Scopes {
		scopes[i] = string(s)
	}
	needs := make([]string, len(c.Needs))
	for i, n := range c.Needs {
		needs[i] = string(n)
	}
	out.Line("Scopes    %s", strings.Join(scopes, ", "))
	loads := orNone(c.Loads)
	if len(c.FleetLoads) > 0 {
		loads += "; in scope fleet also " + strings.Join(c.FleetLoads, ", ")
	}
	out.Line("Loads     %s", loads)
	out.Line("Needs     %s", orNone(needs))
	out.Line("Hazard    %s", orDash(c.Hazard))
	out.Line("")
	out.Line("Parameters")
	showParams(out, c.Params, "")
	out.Line("")
	out.Line("Metrics, for thresholds")
	if len(c.Metrics) == 0 {
		out.Line("  those that its parameters declare")
	}
	for _, m := range c.Metrics {
		when := ""
		if m.When != "" {
			when = "; with " + m.When
		}
		out.Line("  %s (%s, per %s%s%s)", m.Name, m.Unit, m.Level, labelList(m.Labels), when)
		out.Line("      %s", m.Doc)
	}
	if len(c.Facts) > 0 {
		out.Line("")
		out.Line("Facts, for thresholds with equals or distinct")
	}
	for _, f := range c.Facts {
		out.Line("  %s (per %s)", f.Name, f.Level)
		out.Line("      %s", f.Doc)
	}
}

func labelList(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "; labels " + strings.Join(labels, ", ")
}

func showParams(out *reports.Printer, params []paramInfo, indent string) {
	if len(params) == 0 {
		out.Line("  %snone", indent)
	}
	for _, p := range params {
		note := ""
		switch {
		case p.Required:
			note = ", required"
		case p.Default != nil:
			if text, err := json.Marshal(p.Default); err == nil {
				note = ", default " + string(text)
			}
		}
		if p.Unit != "" {
			note += ", in " + p.Unit
		}
		if len(p.Enum) > 0 {
			note += ", one of " + strings.Join(p.Enum, ", ")
		}
		out.Line("  %s%s (%s%s)", indent, p.Name, string(p.Type), note)
		out.Line("      %s%s", indent, p.Doc)
		if len(p.Params) > 0 {
			showParams(out, p.Params, indent+"    ")
		}
	}
}
