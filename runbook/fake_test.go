package runbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// fake is a check that is only described: the language never runs one.
type fake struct{ spec checks.Spec }

func (f fake) Spec() checks.Spec                       { return f.spec }
func (fake) Drive(context.Context, checks.Bench) error { return errors.New("not driven here") }
func (fake) Measure(evidence.CellView, fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	return nil, nil, errors.New("not measured here")
}

// catalogue is what the tests of the language know. It is fixed, so that
// goldens do not follow the real checks.
func catalogue() Known {
	return Known{
		Checks: checks.Catalog{
			fake{inventorySpec()}, fake{allreduceSpec()}, fake{burnSpec()}, fake{failoverSpec()},
			fake{checks.Spec{
				Name: "gang", Version: 1, Scopes: []evidence.Scope{evidence.ScopeNode}, Needs: []evidence.Capability{evidence.CapGang},
				Metrics: func(json.RawMessage) []checks.Metric {
					return []checks.Metric{{Name: "busbw", Unit: "GB/s", Level: "node"}}
				},
			}},
		},
		Executors: []runner.Kind{
			{
				Name: "ssh",
				Params: []evidence.Param{
					{Name: "user", Type: evidence.ParamString, Required: true},
					{Name: "port", Type: evidence.ParamNumber, Whole: true, Default: 22},
					{Name: "known_hosts", Type: evidence.ParamPath, Default: "known_hosts"},
					{Name: "identity", Type: evidence.ParamString, Default: "agent"},
				},
				Can: []evidence.Capability{evidence.CapExec, evidence.CapGang, evidence.CapFault("process_kill")},
			},
			{Name: "bare", Can: []evidence.Capability{evidence.CapExec}},
		},
		Faults: []runner.FaultKind{
			{
				Name:   "process_kill",
				Params: []evidence.Param{{Name: "process", Type: evidence.ParamString, Required: true}},
				Commands: func(f evidence.Fault) (inject, undo []string, err error) {
					var args struct{ Process string }
					if err := json.Unmarshal(f.Args, &args); err != nil {
						return nil, nil, err
					}
					if len(args.Process) > 15 {
						return nil, nil, fmt.Errorf("process %q: the kernel keeps 15 bytes of a name", args.Process)
					}
					return []string{"pkill", args.Process}, nil, nil
				},
			},
			{Name: "power_cycle", Commands: func(evidence.Fault) (inject, undo []string, err error) { return nil, nil, nil }},
		},
	}
}

func nodeSubjects(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
	var out []evidence.Subject
	for _, n := range nodes {
		out = append(out, evidence.Subject(n))
	}
	return out
}

func inventorySpec() checks.Spec {
	return checks.Spec{
		Name: "inventory", Version: 2, Mismatches: "mismatches", Scopes: []evidence.Scope{evidence.ScopeNode},
		Params: []evidence.Param{{Name: "bill_of_materials", Type: evidence.ParamTable}, {Name: "links", Type: evidence.ParamBool, Default: false}},
		Metrics: func(json.RawMessage) []checks.Metric {
			return []checks.Metric{{Name: "mismatches", Unit: "1", Level: "node"}}
		},
		Facts: func(p json.RawMessage) []checks.FactSpec {
			facts := []checks.FactSpec{{Name: "gpus", Level: "node"}, {Name: "gpu_model", Level: "node"}, {Name: "driver_version", Level: "node"}}
			var params struct{ Links bool }
			if err := json.Unmarshal(p, &params); err == nil && params.Links {
				facts = append(facts, checks.FactSpec{Name: "hcas", Level: "node"})
			}
			return facts
		},
		Subjects: nodeSubjects,
	}
}

func allreduceSpec() checks.Spec {
	sizes := func(p json.RawMessage) []string {
		var params struct{ Sizes []string }
		if err := json.Unmarshal(p, &params); err != nil {
			return nil
		}
		return params.Sizes
	}
	return checks.Spec{
		Name: "nccl_allreduce", Version: 3, Scopes: []evidence.Scope{evidence.ScopeNode, evidence.ScopePair}, Loads: []string{"gpu", "fabric"},
		Params: []evidence.Param{
			{Name: "sizes", Type: evidence.ParamStrings, Required: true},
			{Name: "algorithm", Type: evidence.ParamString, Enum: []string{"RING", "TREE", "NVLS"}},
			{Name: "warmup", Type: evidence.ParamDuration, Default: "60s"},
			{Name: "buffer", Type: evidence.ParamBytes, Default: 4194304},
			{Name: "iterations", Type: evidence.ParamNumber, Whole: true, Default: 20},
			{Name: "verify", Type: evidence.ParamBool, Default: true},
			{Name: "ranks", Type: evidence.ParamNumbers, Whole: true, Default: []int{1, 2}},
		},
		Validate: func(p json.RawMessage) error {
			if len(sizes(p)) == 0 {
				return errors.New("sizes: no size: name at least one")
			}
			return nil
		},
		Metrics: func(p json.RawMessage) []checks.Metric {
			labels := []checks.Label{{Name: "size", Values: sizes(p)}}
			return []checks.Metric{
				{Name: "algbw", Unit: "GB/s", Level: "node", Labels: labels},
				{Name: "busbw", Unit: "GB/s", Level: "node", Labels: labels, Resolution: 0.01},
				{Name: "wrong_elements", Unit: "1", Level: "node", Accumulates: true},
			}
		},
		Facts: func(json.RawMessage) []checks.FactSpec {
			return []checks.FactSpec{{Name: "nccl_version", Level: "node"}}
		},
		Subjects: nodeSubjects,
	}
}

func burnSpec() checks.Spec {
	return checks.Spec{
		Name: "gpu_burn", Version: 1, Scopes: []evidence.Scope{evidence.ScopeNode}, Hazard: "full_power",
		Params: []evidence.Param{{Name: "sample", Type: evidence.ParamDuration, Sampling: true, Default: "10s"}},
		Metrics: func(json.RawMessage) []checks.Metric {
			return []checks.Metric{{Name: "gflops", Unit: "GFLOP/s", Level: "node/gpu"}}
		},
		Subjects: func(f evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			var out []evidence.Subject
			for _, e := range f.Expect {
				if e.Fact != "gpus" {
					continue
				}
				gpus, err := strconv.Atoi(e.Value)
				if err != nil {
					return nil
				}
				for _, n := range nodes {
					for g := range gpus {
						out = append(out, evidence.Subject(n+"/gpu"+strconv.Itoa(g)))
					}
				}
			}
			return out
		},
	}
}

func failoverSpec() checks.Spec {
	return checks.Spec{
		Name: "failover", Version: 1, Scopes: []evidence.Scope{evidence.ScopeFleet},
		Params: []evidence.Param{
			{Name: "probe", Type: evidence.ParamBlock, Required: true, Nested: []evidence.Param{
				{Name: "every", Type: evidence.ParamDuration, Default: "1s"},
				{Name: "path", Type: evidence.ParamPath},
			}},
			{Name: "client", Type: evidence.ParamBlocks, Nested: []evidence.Param{
				{Name: "argv", Type: evidence.ParamArgv, Required: true},
				{Name: "limit", Type: evidence.ParamBytes},
			}},
			{Name: "before", Type: evidence.ParamArgvs},
		},
		Metrics: func(json.RawMessage) []checks.Metric {
			return []checks.Metric{{Name: "outage", Unit: "s", Level: "fleet", Accumulates: true}}
		},
		Subjects: func(evidence.Fleet, []string, evidence.Scope, string, json.RawMessage) []evidence.Subject {
			return []evidence.Subject{evidence.SubjectFleet}
		},
	}
}
