package runbook

// The rules, by the stage that checks them.
const (
	// Reading.
	RuleUnreadable Rule = "unreadable"
	RuleSyntax     Rule = "syntax"
	RuleTooComplex Rule = "too-complex"
	RuleVarFile    Rule = "variable-file"

	// Structure.
	RuleNotYet              Rule = "not-yet"
	RuleUnsupportedArgument Rule = "unsupported-argument"
	RuleUnsupportedBlock    Rule = "unsupported-block"
	RuleMissingArgument     Rule = "missing-argument"
	RuleMissingBlock        Rule = "missing-block"
	RuleDuplicateBlock      Rule = "duplicate-block"
	RuleDuplicateName       Rule = "duplicate-name"
	RuleLabel               Rule = "label"
	RuleName                Rule = "name"

	// Expressions and references.
	RuleExpression      Rule = "expression"
	RuleFunctionCall    Rule = "function-call"
	RuleImpureFunction  Rule = "impure-function"
	RuleUnknownFunction Rule = "unknown-function"
	RuleTooMuchWork     Rule = "too-much-work"
	RuleValueTooLarge   Rule = "value-too-large"
	RuleReference       Rule = "reference"
	RuleUndeclared      Rule = "undeclared"
	RuleRepeated        Rule = "repeated"
	RuleCycle           Rule = "cycle"
	RuleType            Rule = "type"
	RuleNumberText      Rule = "number-text"
	RuleEmptyText       Rule = "empty-text"
	RuleChoice          Rule = "choice"
	RuleCommand         Rule = "command"
	RuleDuration        Rule = "duration"
	RuleZeroDuration    Rule = "zero-duration"

	// The runbook and its inputs.
	RuleVersionConstraint Rule = "version-constraint"
	RuleRequiredVersion   Rule = "required-version"
	RuleToolVersion       Rule = "tool-version"
	RuleVariableType      Rule = "variable-type"
	RuleVariableValue     Rule = "variable-value"
	RuleUnsetVariable     Rule = "unset-variable"
	RuleUnknownVariable   Rule = "unknown-variable"
	RuleValidation        Rule = "validation"
	RuleValidationFailed  Rule = "validation-failed"

	// The fleet.
	RuleNodeSet         Rule = "node-set"
	RuleOutsideFleet    Rule = "outside-fleet"
	RuleLayout          Rule = "layout"
	RuleLayoutNode      Rule = "layout-node"
	RuleUnknownExecutor Rule = "unknown-executor"
	RuleUnknownFact     Rule = "unknown-fact"
	RuleExpectUnjudged  Rule = "expect-unjudged"

	// Phases and owners.
	RuleGateRequire    Rule = "gate-require"
	RuleGateImpossible Rule = "gate-impossible"
	RuleEmptyPhase     Rule = "empty-phase"
	RuleUnusedOwner    Rule = "unused-owner"

	// Tests.
	RuleNoThreshold   Rule = "no-threshold"
	RuleDeadline      Rule = "deadline"
	RuleUnknownCheck  Rule = "unknown-check"
	RuleCheckParams   Rule = "check-params"
	RuleNeeds         Rule = "needs"
	RuleScope         Rule = "scope"
	RulePairs         Rule = "pairs"
	RuleHazard        Rule = "hazard"
	RuleClaims        Rule = "claims"
	RuleClaimEmpty    Rule = "claim-empty"
	RuleClaimTwice    Rule = "claim-twice"
	RuleClaimUnbound  Rule = "claim-unbound"
	RuleUnknownFault  Rule = "unknown-fault"
	RuleFaultExecutor Rule = "fault-executor"
	RuleFaultNodes    Rule = "fault-nodes"
	RuleFaultLate     Rule = "fault-late"
	RuleFaultArgs     Rule = "fault-args"

	// Evidence.
	RuleNothingSampled Rule = "nothing-sampled"

	// Thresholds.
	RuleUnknownMetric     Rule = "unknown-metric"
	RuleThresholdTwice    Rule = "threshold-twice"
	RuleNoBound           Rule = "no-bound"
	RuleBound             Rule = "bound"
	RuleBoundKind         Rule = "bound-kind"
	RuleUnknownStat       Rule = "unknown-stat"
	RuleStatNeeded        Rule = "stat-needed"
	RuleUnit              Rule = "unit"
	RulePer               Rule = "per"
	RuleUnknownLabel      Rule = "unknown-label"
	RuleUnknownLabelValue Rule = "unknown-label-value"
	RuleNeverMet          Rule = "never-met"
	RuleNeverFails        Rule = "never-fails"

	// Releases.
	RuleReleaseEmpty      Rule = "release-empty"
	RuleReleaseUnmeasured Rule = "release-unmeasured"

	// The plan.
	RuleSubjectsUnknown Rule = "subjects-unknown"
	RuleTooFewSamples   Rule = "too-few-samples"
	RuleTooFewSubjects  Rule = "too-few-subjects"
	RuleMinSamples      Rule = "min-samples"
	RulePlanTooLarge    Rule = "plan-too-large"
	RuleNotLoaded       Rule = "not-loaded"

	// Trust policies.
	RuleTrustKey   Rule = "trust-key"
	RuleTrustRole  Rule = "trust-role"
	RuleTrustDate  Rule = "trust-date"
	RuleTrustValue Rule = "trust-value"
)

// Rules lists every rule.
func Rules() []Rule {
	return []Rule{
		RuleUnreadable, RuleSyntax, RuleTooComplex, RuleVarFile,
		RuleNotYet, RuleUnsupportedArgument, RuleUnsupportedBlock, RuleMissingArgument, RuleMissingBlock,
		RuleDuplicateBlock, RuleDuplicateName, RuleLabel, RuleName,
		RuleExpression, RuleFunctionCall, RuleImpureFunction, RuleUnknownFunction, RuleTooMuchWork, RuleValueTooLarge,
		RuleReference, RuleUndeclared, RuleRepeated, RuleCycle, RuleType, RuleNumberText, RuleEmptyText, RuleChoice, RuleCommand,
		RuleDuration, RuleZeroDuration,
		RuleVersionConstraint, RuleRequiredVersion, RuleToolVersion, RuleVariableType, RuleVariableValue,
		RuleUnsetVariable, RuleUnknownVariable, RuleValidation, RuleValidationFailed,
		RuleNodeSet, RuleOutsideFleet, RuleLayout, RuleLayoutNode, RuleUnknownExecutor, RuleUnknownFact, RuleExpectUnjudged,
		RuleGateRequire, RuleGateImpossible, RuleEmptyPhase, RuleUnusedOwner,
		RuleNoThreshold, RuleDeadline, RuleUnknownCheck, RuleCheckParams, RuleNeeds, RuleScope, RulePairs, RuleHazard,
		RuleClaims, RuleClaimEmpty, RuleClaimTwice, RuleClaimUnbound,
		RuleUnknownFault, RuleFaultExecutor, RuleFaultNodes, RuleFaultLate, RuleFaultArgs, RuleNothingSampled,
		RuleUnknownMetric, RuleThresholdTwice, RuleNoBound, RuleBound, RuleBoundKind, RuleUnknownStat, RuleStatNeeded,
		RuleUnit, RulePer, RuleUnknownLabel, RuleUnknownLabelValue, RuleNeverMet, RuleNeverFails,
		RuleReleaseEmpty, RuleReleaseUnmeasured,
		RuleSubjectsUnknown, RuleTooFewSamples, RuleTooFewSubjects, RuleMinSamples, RulePlanTooLarge, RuleNotLoaded,
		RuleTrustKey, RuleTrustRole, RuleTrustDate, RuleTrustValue,
	}
}
