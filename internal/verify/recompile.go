package verify

import (
	"encoding/json"
	"fmt"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
)

// recompile is step 4: the enclosed sources, compiled with the enclosed
// values of the variables, give the enclosed plan. Values are compared, not
// bytes, at the plan's minor version.
func recompile(c *content, known runbook.Known) attest.StepResult {
	s := newStep(stepPlan)
	if c.planErr != nil {
		s.fail(attest.Failure{
			Code: attest.CodePlan, Path: evidence.PlanPath, Message: "the plan cannot be read: " + c.planErr.Error(),
			Next: "ask for another copy of the bundle: nothing can be judged without its plan",
		})
		return s.result("")
	}
	files := enclosedSources(c, s)
	if unknown := unknownChecks(c.plan, known.Checks); len(unknown) > 0 {
		for _, u := range unknown {
			s.leave("%s", u)
		}
		return s.result("")
	}
	if c.newer {
		s.leave("the bundle was written by a newer minor version of the schema than this build knows")
		return s.result("")
	}
	if len(s.failures) > 0 {
		return s.result("")
	}
	compiled := compile(c.plan, files, known, s)
	if compiled != nil {
		comparePlans(c, compiled, s)
	}
	return s.result(fmt.Sprintf("the enclosed runbook compiles to the enclosed plan: %s, %s", evidence.Count(len(c.plan.Tests), "test"), evidence.Count(len(c.plan.Cells), "cell")))
}

// enclosedSources reads the plan's sources and checks each against the plan.
func enclosedSources(c *content, s *step) memory {
	files := make(memory)
	for _, source := range c.plan.Sources {
		path := evidence.RunbookDir + "/" + evidence.SourcePath(source.Path)
		data, err := c.file(path)
		if err != nil {
			s.fail(attest.Failure{
				Code: CodeSourceDiffers, Path: path, Message: "a source of the plan cannot be read: " + err.Error(),
				Expected: string(source.Digest),
			})
			continue
		}
		if digest := evidence.DigestOf(data); digest != source.Digest {
			s.fail(attest.Failure{
				Code: CodeSourceDiffers, Path: path, Message: "this source is not the one that the plan was compiled from",
				Expected: string(source.Digest), Actual: string(digest),
			})
			continue
		}
		files[source.Path] = data
	}
	if digest := evidence.SourcesDigest(c.plan.Sources); digest != c.plan.Runbook {
		s.fail(attest.Failure{
			Code: CodeSourceDiffers, Path: evidence.PlanPath, Message: "the plan's runbook digest is not that of its list of sources",
			Expected: string(digest), Actual: string(c.plan.Runbook),
		})
	}
	return files
}

func compile(plan *evidence.Plan, files memory, known runbook.Known, s *step) *evidence.Plan {
	values := make(map[string]json.RawMessage, len(plan.Variables))
	for _, v := range plan.Variables {
		values[v.Name] = v.Value
	}
	loaded, diags := runbook.Load(files, plan.Path, runbook.Inputs{Values: values, Dir: "/", SkipRequiredVersion: true}, known)
	if !diags.HasErrors() {
		compiled, more := loaded.Compile()
		if !more.HasErrors() {
			return compiled
		}
		diags = more
	}
	for _, err := range diags.Errs() {
		s.fail(attest.Failure{
			Code: CodeRunbook, Path: evidence.RunbookDir + "/" + evidence.SourcePath(plan.Path), Message: "the enclosed runbook does not compile: " + err.Error(),
			Next: "verify with the version of rackproof that wrote the bundle, named in run/tool.json",
		})
	}
	return nil
}

func comparePlans(c *content, compiled *evidence.Plan, s *step) {
	compiled.Minor = c.plan.Minor
	// A run may be narrowed by flags, which no source holds; a plan says so
	// itself, and a rule of the trust policy refuses it.
	compiled.Narrowed = c.plan.Narrowed
	doc, err := evidence.Encode(compiled)
	if err != nil {
		s.fail(attest.Failure{Code: CodeRunbook, Path: evidence.PlanPath, Message: "the compiled plan cannot be written: " + err.Error()})
		return
	}
	differences, err := diffDocuments(doc, c.planBytes)
	if err != nil {
		s.fail(attest.Failure{Code: attest.CodePlan, Path: evidence.PlanPath, Message: err.Error()})
		return
	}
	for _, d := range differences {
		s.fail(attest.Failure{
			Code: CodePlanDiffers, Path: evidence.PlanPath + "#" + d.Path,
			Message:  d.Path + " is not what the enclosed runbook compiles to",
			Expected: d.Want, Actual: d.Got,
			Next: "the plan was edited after it was compiled, or was made from other sources: do not accept the verdict",
		})
	}
}
