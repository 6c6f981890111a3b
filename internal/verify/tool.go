package verify

import (
	"fmt"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// checkTool holds the tool that the run names against the plan: a build runs
// only plans of its own check versions.
func checkTool(c *content, s *step) {
	tool, _, err := document[evidence.Tool](c, evidence.ToolPath, evidence.MediaTool)
	if err != nil {
		s.fail(attest.Failure{Code: CodeTool, Path: evidence.ToolPath, Message: "the tool that wrote the run cannot be read: " + err.Error()})
		return
	}
	told := make(map[string]bool)
	for _, t := range c.plan.Tests {
		if version, known := tool.Checks[t.Check]; (!known || version != t.CheckVersion) && !told[t.Check] {
			told[t.Check] = true
			s.fail(attest.Failure{
				Code: CodeTool, Path: evidence.ToolPath + "#checks[" + t.Check + "]", Message: "the tool that wrote the run has another version of check " + t.Check + " than its plan",
				Expected: fmt.Sprint(t.CheckVersion), Actual: fmt.Sprint(version), Next: resignedNext,
			})
		}
	}
}
