// Package runbook is the language: it reads a runbook, checks it and compiles
// it to an evidence.Plan. No other package below internal sees HCL.
//
// A runbook is decoded in stages: parse, runbook, variable, locals (in the
// order of their references), then party, owner, fleet, nodeset, phase and
// evidence, then test, then release, then the rules about the whole. All
// diagnostics of a stage are collected; a stage with errors stops the next.
//
// Only pure functions exist, and files are read only inside the runbook's
// folder: the same text and inputs give the same plan, byte for byte. Each
// diagnostic carries the Rule that was broken in its Extra field.
//
// References, such as owner.fabric or phase.soak, are names and not values:
// they are resolved without evaluation, so that they can be checked before
// anything runs.
package runbook
