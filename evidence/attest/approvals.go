package attest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

const nextApproval = "this build counts no approvals: use a runbook without approval blocks, or a trust policy without approved = true, or a build that counts them"

// checkApprovals is step 3. This build counts no approvals, so it is ok only
// where neither the plan nor the trust policy asks for one; files in
// approvals/ change nothing.
func checkApprovals(plan *evidence.Plan, p Policy, present []string) StepResult {
	var fails failures
	if plan == nil {
		fails.add(Failure{
			Code: CodePlan, Path: evidence.PlanPath, Message: "cannot be read, so nobody knows which approvals it asks for",
			Next: nextUntrusted,
		})
	} else {
		for _, q := range plan.Quorums {
			fails.add(Failure{
				Code: CodeApprovalMissing, Path: evidence.ApprovalsDir,
				Message:  fmt.Sprintf("the runbook asks for the approval %q of %s", q.Name, q.Of),
				Expected: quorumWords(q), Actual: "none counted", Next: nextApproval,
			})
		}
	}
	if p.Require.Approved {
		fails.add(Failure{
			Code: CodeApprovalMissing, Path: evidence.ApprovalsDir, Message: "the trust policy requires an approved plan",
			Expected: "an approval", Actual: "none counted", Next: nextApproval,
		})
	}
	summary := "none required"
	if n := len(present); n > 0 {
		summary += "; not evaluated: " + evidence.Count(n, "file") + " in approvals/"
	}
	return fails.result(3, "approvals", summary)
}

// quorumWords tells who has to approve: "2 of customer, 1 of vendor".
func quorumWords(q evidence.Quorum) string {
	var words []string
	for _, party := range slices.Sorted(maps.Keys(q.Counts)) {
		words = append(words, fmt.Sprintf("%d of %s", q.Counts[party], party))
	}
	if len(words) == 0 {
		words = q.By
	}
	if len(words) == 0 {
		return "an approval"
	}
	return strings.Join(words, ", ")
}
