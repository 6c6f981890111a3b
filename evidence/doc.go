// Package evidence is what a run leaves behind: the wire schema, the journal,
// the store that a run is written to and the bundle that it is read from.
//
// Everything above this package works on these plain values. The package
// knows nothing of HCL, of SSH or of how a threshold is judged, and imports
// only the standard library and evidence/nodeset.
//
// # The directory of a run
//
//	run/plan.json           Plan: every expected cell, before the first command
//	run/runbook/...         the sources that the plan was compiled from
//	run/tool.json           Tool: the program that ran
//	run/inventory.json      Inventory: who the nodes were
//	run/journal.jsonl       Record: one event a line, each with the hash of the line before
//	run/torn-<n>            what a death in the middle of a write left of the journal
//	cells/<test>/<nodes>.r<repetition>/<attempt>/
//	    attempt.json        Attempt: its steps, and every file below raw/ with its digest
//	    raw/<step>.<node>/  stdout, stderr and exit.json (Exit)
//	    raw/<name>          what is no command's output, such as faults.jsonl
//	captures/<phase>/<start|end>/<node>/<name>/
//	run/measurements.jsonl  MeasurementLine } derived: anyone may derive them again
//	run/verdict.json        Verdict         }
//	run/seals/<n>/          the lists and the signature of a seal that a resume has set aside
//
// A sealed run has two lists of all these files more, SHA256SUMS for
// sha256sum -c and manifest.json, and beside what they list only
// evidence.sigstore.json and approvals/*.sigstore.json.
//
// # What is trusted
//
// The journal names the digest of each attempt.json, an attempt.json those of
// its raw files, and the journal's own lines are chained. Results derives
// every attempt again from these alone; what is missing, different or not
// listed is a problem of the attempt, never silence.
//
// # Documents
//
// A document starts with its media type, whose number is the major version,
// and its minor version. Within a major fields are added and never removed,
// renamed or given another meaning. Encode is the only writer, DecodeStrict
// and DecodeDocument are the only readers. Missing fields have their zero
// value, of which none is a pass.
package evidence
