package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/reports"
)

type planOptions struct {
	runbook string
	inputs  inputOptions
	out     string
	json    bool
}

func newPlanCmd(p *Process) *cobra.Command {
	opts := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan RUNBOOK",
		Short: "Show every cell that a run would measure, and what it may do",
		Long: `Compile a runbook and show what a run would do: every cell, who owns it, the
hazards, and the time per phase. Nothing is contacted.`,
		Example: `  rackproof plan pod7.runbook.hcl
  rackproof plan pod7.runbook.hcl --out plans/pod7`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.runbook = args[0]
			return runPlan(p, cmd, opts)
		},
	}
	opts.inputs.bind(cmd)
	cmd.Flags().StringVar(&opts.out, "out", "", "write a plan directory that \"run\" accepts: plan, sources, inputs")
	cmd.Flags().BoolVar(&opts.json, "json", false, "print the plan as JSON")
	return cmd
}

func runPlan(p *Process, cmd *cobra.Command, opts *planOptions) error {
	c, err := opts.inputs.target(p, opts.runbook)
	if err != nil {
		return err
	}
	if err := c.explain(p, cmd); err != nil {
		return err
	}
	if err := notEmpty(c.plan); err != nil {
		return err
	}
	if opts.out != "" {
		if err := c.writePlanDir(opts.out); err != nil {
			return err
		}
	}
	if opts.json {
		return printJSON(p.Stdout, c.plan)
	}
	return showPlan(p, c.plan)
}

// notEmpty refuses a plan that would judge nothing.
func notEmpty(plan *evidence.Plan) error {
	if len(plan.Tests) == 0 || len(plan.Cells) == 0 {
		return usageError("runbook %s: there is nothing to run: %s", plan.Name, sizeOf(len(plan.Tests), len(plan.Cells)))
	}
	return nil
}

// sizeOf is how much there is in a plan.
func sizeOf(tests, cells int) string {
	return evidence.Count(tests, "test") + ", " + evidence.Count(cells, "cell")
}

func showPlan(p *Process, plan *evidence.Plan) error {
	out := &reports.Printer{W: p.Stdout}
	digest, err := evidence.PlanDigest(plan)
	if err != nil {
		return err
	}
	out.Line("Plan      %s  %s", strings.TrimSpace(plan.Name+" "+plan.Version), string(digest))
	out.Line("Runbook   %s  %s", plan.Path, string(plan.Runbook))
	out.Line("Fleet     %s: %s, %s, by executor %q", plan.Fleet.Name, evidence.Count(len(plan.Fleet.Nodes), "node"), nodeset.Fold(plan.Fleet.NodeNames()), plan.Executor)
	for _, v := range plan.Variables {
		mark := ""
		if v.OffContract {
			mark = "  OFF CONTRACT, contract " + string(v.Contract) + ": cannot be released"
		}
		out.Line("Variable  %s = %s%s", v.Name, string(v.Value), mark)
	}
	phases := estimates(plan)
	for _, phase := range plan.Phases {
		showPhase(out, plan, phase, phases[phase.Name])
	}
	out.Line("")
	showFaults(out, plannedFaults(plan))
	if names := hazards(plan); len(names) > 0 {
		out.Line("Hazards, to be allowed by name: --allow %s", strings.Join(names, ","))
	} else {
		out.Line("Hazards   none")
	}
	for _, q := range plan.Quorums {
		out.Line("Approval  %s of the %s: missing", q.Name, q.Of)
	}
	for _, r := range plan.Releases {
		out.Line("Release   %s: %s; requires %s", r.Name, r.Nodes, strings.Join(r.Require, ", "))
	}
	out.Line("Total     %s, about %s on %s", sizeOf(len(plan.Tests), len(plan.Cells)), roughly(wallTime(plan, phases)), evidence.Count(len(plan.Fleet.Nodes), "node"))
	return out.Err
}

// showPhase lists every cell, those of one test folded into a row: a thousand
// nodes are one line that can be read.
func showPhase(out *reports.Printer, plan *evidence.Plan, phase evidence.Phase, about *estimate) {
	out.Line("")
	after := ""
	if len(phase.DependsOn) > 0 {
		after = ", after " + strings.Join(phase.DependsOn, ", ")
	}
	out.Line("Phase %s%s: gate requires %s, on_fail = %s; about %s of wall time, %.1f node-hours", phase.Name, after, phase.Gate.Require, phase.Gate.OnFail,
		roughly(about.wall), about.nodeHours)
	rows := [][]string{{"TEST", "CHECK", "CELLS", "SCOPE", "NODES", "DURATION", "OWNER", "HAZARD"}}
	for _, t := range plan.Tests {
		if t.Phase == phase.Name {
			rows = append(rows, []string{t.Name, t.Check, strconv.Itoa(about.cells[t.Name]), string(t.Scope), t.Nodes, t.Duration.String(), t.Owner, orDash(t.Hazard)})
		}
	}
	out.Table(rows)
}

// showFaults lists what a run will break.
func showFaults(out *reports.Printer, faults []plannedFault) {
	if len(faults) == 0 {
		return
	}
	out.Line("Faults, injected by every cell of their test, and again by each further attempt")
	rows := [][]string{{"TEST", "FAULT", "NODES", "AFTER", "FOR", "INJECTIONS"}}
	for _, f := range faults {
		rows = append(rows, []string{f.Test, f.Fault, f.Nodes, f.After.String(), f.For.String(), strconv.Itoa(f.Injections)})
	}
	out.Table(rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// hazards lists the hazards of the plan, sorted, as the runner asks for them:
// faults of a test that names none go by their kinds.
func hazards(plan *evidence.Plan) []string {
	var names []string
	for _, t := range plan.Tests {
		if t.Hazard != "" {
			names = append(names, t.Hazard)
			continue
		}
		for _, f := range t.Faults {
			names = append(names, f.Kind)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// estimate is what a phase will take.
type estimate struct {
	wall      float64 // seconds; a time.Duration ends after 292 years, and 400 nodes for a year each are more
	nodeHours float64
	cells     map[string]int // by test
}

// estimates are those of every phase, by name. The wall time is no less than
// the longest test with all of its repetitions, than what the parallelism
// allows, and than what any one node has to do.
func estimates(plan *evidence.Plan) map[string]*estimate {
	type load struct {
		longest, total float64
		node           map[string]float64
	}
	phases := make(map[string]*estimate, len(plan.Phases))
	loads := make(map[string]*load, len(plan.Phases))
	for _, phase := range plan.Phases {
		phases[phase.Name] = &estimate{cells: map[string]int{}}
		loads[phase.Name] = &load{node: map[string]float64{}}
	}
	tests := make(map[string]*evidence.Test, len(plan.Tests))
	for i := range plan.Tests {
		t := &plan.Tests[i]
		tests[t.Name] = t
		loads[t.Phase].longest = max(loads[t.Phase].longest, t.Duration.Std().Seconds()*float64(max(t.Repeat, 1)))
	}
	for _, c := range plan.Cells {
		t := tests[c.Test]
		phase, load, nodes := phases[t.Phase], loads[t.Phase], nodesOf(c)
		seconds := t.Duration.Std().Seconds()
		phase.cells[t.Name]++
		phase.nodeHours += seconds / 3600 * float64(len(nodes))
		load.total += seconds
		for _, node := range nodes {
			load.node[node] += seconds
		}
	}
	for name, load := range loads {
		phases[name].wall = max(load.longest, load.total/float64(max(plan.Parallel, 1)))
		for _, busy := range load.node {
			phases[name].wall = max(phases[name].wall, busy)
		}
	}
	return phases
}

// plannedFault is one fault of a test, and how often a run injects it.
type plannedFault struct {
	Test  string
	Fault string // its kind and part
	Nodes string // folded
	After evidence.Duration
	For   evidence.Duration
	// Injections count each node in each cell: every cell of the test injects
	// the fault on all of the fault's nodes, whether or not they are its own,
	// and a further attempt does so again.
	Injections int
}

// plannedFaults are those of every test, in the plan's order.
func plannedFaults(plan *evidence.Plan) []plannedFault {
	cells := make(map[string]int, len(plan.Tests))
	for _, c := range plan.Cells {
		cells[c.Test]++
	}
	var faults []plannedFault
	for _, t := range plan.Tests {
		for _, f := range t.Faults {
			faults = append(faults, plannedFault{
				Test: t.Name, Fault: f.String(), Nodes: nodeset.Fold(f.Nodes), After: f.After, For: f.For, Injections: cells[t.Name] * len(f.Nodes),
			})
		}
	}
	return faults
}

// nodesOf lists a cell's nodes; a plan that compiled has only sound node sets.
func nodesOf(c evidence.Cell) []string {
	if !strings.ContainsAny(c.Nodes, "[],") {
		return []string{c.Nodes}
	}
	names, err := nodeset.Parse(c.Nodes, nil)
	if err != nil {
		return nil
	}
	return names
}

// wallTime is about how many seconds the plan takes: its phases follow each
// other.
func wallTime(plan *evidence.Plan, phases map[string]*estimate) float64 {
	total := 0.0
	for _, phase := range plan.Phases {
		total += phases[phase.Name].wall
	}
	return total
}

// roughly is a number of seconds as people say it: "26 h 30 min", "5 min",
// "20 s".
func roughly(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%.0f s", math.Floor(seconds))
	}
	minutes := math.Round(seconds / 60)
	if minutes < 60 {
		return fmt.Sprintf("%.0f min", minutes)
	}
	hours, rest := math.Floor(minutes/60), math.Mod(minutes, 60)
	if rest > 0 {
		return fmt.Sprintf("%.0f h %.0f min", hours, rest)
	}
	return fmt.Sprintf("%.0f h", hours)
}
