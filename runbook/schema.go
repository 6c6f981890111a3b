package runbook

// A Block describes one kind of block: what it may hold, and the sentence that
// becomes its documentation.
type Block struct {
	Type      string
	Label     string // what its label is: "name", "metric"; empty: it has none
	Doc       string
	Required  bool // at least one
	Single    bool // at most one
	Arguments []Argument
	Blocks    []Block
	// Extends says whose parameters join the arguments: "check", "executor"
	// or "fault". Open says that any argument is a name of the author's.
	Extends string
	Open    string
	// Later marks a piece of the language that this build refuses.
	Later bool
}

// An Argument describes one argument of a block.
type Argument struct {
	Name     string
	Type     string // in words: "text", "list of phase"
	Doc      string
	Required bool
	Default  string // in words; empty: none
	Later    bool
}

func (b Block) argument(name string) (Argument, bool) {
	for _, a := range b.Arguments {
		if a.Name == name {
			return a, true
		}
	}
	return Argument{}, false
}

func (b Block) block(name string) (Block, bool) {
	for _, c := range b.Blocks {
		if c.Type == name {
			return c, true
		}
	}
	return Block{}, false
}

// later is an argument that this build refuses.
func later(name, typ, doc string) Argument {
	return Argument{Name: name, Type: typ, Doc: doc, Later: true}
}

// Schema is the language of runbooks, as data: the root holds the top-level
// blocks.
func Schema() Block {
	return Block{
		Doc: "A runbook is one file of these blocks.",
		Blocks: []Block{
			runbookBlock(), variableBlock(), localsBlock(), partyBlock(), ownerBlock(), approvalBlock(),
			fleetBlock(), nodesetBlock(), phaseBlock(), evidenceBlock(), testBlock(), releaseBlock(),
		},
	}
}

func runbookBlock() Block {
	return Block{
		Type: "runbook", Label: "name", Required: true, Single: true,
		Doc: "Names the runbook. There is exactly one.",
		Arguments: []Argument{
			{Name: "title", Type: "text", Required: true, Doc: "What is accepted, in one line."},
			{Name: "version", Type: "text", Doc: "The version of this text; it travels into the evidence."},
			{Name: "required_version", Type: "text", Doc: "The versions of rackproof that may run it, such as \">= 0.1.0, < 2.0.0\"."},
			later("requirements", "text", "CSV of the identifiers of the contract, so that those without a test can be named."),
		},
	}
}

func variableBlock() Block {
	return Block{
		Type: "variable", Label: "name",
		Doc: "An input of the runbook. Its value is written into the plan.",
		Arguments: []Argument{
			{Name: "type", Type: "type", Required: true, Doc: "The type of its value, such as string, number, bool or list(string)."},
			{Name: "description", Type: "text", Doc: "What it is for."},
			{Name: "default", Type: "value", Doc: "The value where none is given. Without a default one must be given."},
			{Name: "contract", Type: "value", Doc: "The value that was agreed. Any other marks the run as off contract."},
		},
		Blocks: []Block{{
			Type: "validation", Doc: "A condition that the value must meet.",
			Arguments: []Argument{
				{Name: "condition", Type: "bool", Required: true, Doc: "An expression that refers to the variable and is true for a good value."},
				{Name: "error_message", Type: "text", Required: true, Doc: "What is said of a value that does not meet it."},
			},
		}},
	}
}

func localsBlock() Block {
	return Block{
		Type: "locals", Doc: "Names for values, referred to as local.NAME. They may refer to each other in any order.",
		Open: "value",
	}
}

func partyBlock() Block {
	return Block{
		Type: "party", Label: "name", Doc: "A side of the contract.",
		Arguments: []Argument{{Name: "name", Type: "text", Required: true, Doc: "Its full name."}},
	}
}

func ownerBlock() Block {
	return Block{
		Type: "owner", Label: "name", Doc: "Who answers for tests. Every test has an owner: a failure without an addressee is nobody's.",
		Arguments: []Argument{
			{Name: "party", Type: "party", Doc: "The side that the owner belongs to."},
			{Name: "name", Type: "text", Doc: "The full name of the team or person."},
			{Name: "contact", Type: "text", Required: true, Doc: "Where a failure is reported to."},
			{Name: "key", Type: "text", Doc: "The owner's public key in PEM, usually by file()."},
		},
	}
}

func approvalBlock() Block {
	return Block{Type: "approval", Label: "name", Later: true, Doc: "Signed consent that must be there before a run or a release."}
}

func fleetBlock() Block {
	return Block{
		Type: "fleet", Label: "name", Required: true, Single: true,
		Doc: "The machines under test. There is exactly one fleet.",
		Arguments: []Argument{
			{Name: "hosts", Type: "node set", Required: true, Doc: "The nodes, such as \"gpu[001-032]\"."},
			{Name: "layout", Type: "table", Doc: "One row for each node, usually by csvdecode(file(\"layout.csv\")). The column node names it, the others become its labels."},
			later("freeze", "list of text", "Parts that are read at the start and end of every phase."),
			later("limit", "object", "Power and faulted nodes that the scheduler must not exceed."),
		},
		Blocks: []Block{
			{
				Type: "executor", Label: "kind", Required: true, Single: true, Extends: "executor",
				Doc: "How commands reach the nodes. The label picks the kind, and the kind its arguments. Apart from those named here they are not part of the plan.",
				Arguments: []Argument{
					{Name: "parallel", Type: "whole number", Default: "the number of nodes, at most 64", Doc: "At most so many cells run at once."},
					{Name: "clock_limit", Type: "duration", Default: "5s", Doc: "How far a node's clock may be from the runner's."},
					{Name: "shared_machine", Type: "bool", Default: "false", Doc: "Several nodes may be one machine. The evidence says so."},
				},
			},
			{Type: "expect", Single: true, Open: "text, number or bool", Doc: "Facts of the check inventory that every node must show, by name. A threshold of inventory's mismatches with max = 0 judges them, on every node."},
		},
	}
}

func nodesetBlock() Block {
	return Block{
		Type: "nodeset", Label: "name", Doc: "A named part of the fleet.",
		Arguments: []Argument{{Name: "hosts", Type: "node set", Required: true, Doc: "Its nodes. \"@name\" stands for another node set or the fleet."}},
	}
}

func phaseBlock() Block {
	return Block{
		Type: "phase", Label: "name", Required: true, Doc: "A group of tests that is passed through as one.",
		Arguments: []Argument{
			{Name: "depends_on", Type: "list of phase", Doc: "The phases that must be over before it starts."},
			later("hold", "list of owner", "Owners who must release the phase before it starts."),
			later("witness", "list of owner", "Owners who may attend the phase."),
		},
		Blocks: []Block{{
			Type: "gate", Single: true, Doc: "The rule to leave the phase.",
			Arguments: []Argument{
				{Name: "require", Type: "text or whole number", Default: "\"all\"", Doc: "How many nodes must pass everything: \"all\", a number, or a share such as \"90%\"."},
				{Name: "on_fail", Type: "text", Default: "\"continue\"", Doc: "What happens if they do not: \"stop\", \"continue\", or \"exclude\" the nodes that failed from later cells."},
			},
		}},
	}
}

func evidenceBlock() Block {
	return Block{
		Type: "evidence", Single: true, Doc: "What is kept beside the tests' own output.",
		Arguments: []Argument{
			{Name: "capture", Type: "list of commands", Doc: "Commands whose output is kept from every node at the start and at the end of each phase; each has 2 minutes."},
			{Name: "sample_interval", Type: "duration", Default: "each check's own", Doc: "How often a check samples while it runs, where the test does not say so itself."},
			later("on_fail", "list of commands", "Commands whose output is kept at once where a cell failed."),
			later("redact", "list of text", "What is taken out of the output before it is hashed."),
		},
	}
}

func testBlock() Block {
	return Block{
		Type: "test", Label: "name", Required: true, Doc: "One use of a check: who, where, when, and how good.",
		Arguments: []Argument{
			{Name: "phase", Type: "phase", Required: true, Doc: "The phase it belongs to."},
			{Name: "nodes", Type: "fleet or nodeset", Required: true, Doc: "Where it runs."},
			{Name: "scope", Type: "text", Default: "the first scope of its check", Doc: "How nodes become cells: \"node\", one each; \"pair\", the first with the second, the third with the fourth, and a node that is left over with the first; \"fleet\", all in one."},
			{Name: "owner", Type: "owner", Required: true, Doc: "Who answers for it."},
			{Name: "duration", Type: "duration", Required: true, Doc: "How long it is expected to take, and for a soak how long the rack must be under load."},
			{Name: "deadline", Type: "duration", Default: "duration and half of it, at most 30 min more", Doc: "When the far side is ended."},
			{Name: "silence", Type: "duration", Doc: "Ends a command that printed nothing for so long."},
			{Name: "hazard", Type: "text", Doc: "What it may do to the rack. It is allowed again by name at run."},
			{Name: "establishes", Type: "map of sentence to list of threshold", Required: true, Doc: "What the test shows, each sentence with the thresholds that carry it."},
			{Name: "does_not_establish", Type: "list of text", Required: true, Doc: "What it does not show."},
			later("depends_on", "list of test", "Tests that must be over before it starts."),
			later("for_each", "map or set", "One test for each element."),
			later("repeat", "whole number", "How many cells for each node set."),
			later("retries", "whole number", "Attempts after a failure."),
			later("requirements", "list of text", "Identifiers of the contract that the test answers."),
		},
		Blocks: []Block{
			{Type: "check", Label: "type", Required: true, Single: true, Extends: "check", Doc: "What is measured. The label picks the check, and the check its arguments."},
			thresholdBlock(),
			faultBlock(),
			{Type: "evidence", Later: true, Doc: "What is kept beside the output of this test."},
			{Type: "clock", Later: true, Doc: "What an interruption does to the time under load."},
			{Type: "not_applicable", Later: true, Doc: "Leaves the test out, with a reason and who approved it."},
		},
	}
}

func thresholdBlock() Block {
	return Block{
		Type: "threshold", Label: "metric", Doc: "A bound on a statistic of a metric, or on a text fact. At least one of min, max and equals is there.",
		Arguments: []Argument{
			{Name: "name", Type: "text", Default: "the metric", Doc: "Its name, where a test has several thresholds of one metric."},
			{Name: "stat", Type: "text", Default: "\"min\" with a lower bound, \"max\" with an upper one, \"equals\" with equals", Doc: "The statistic: min, max, mean, median, p1 to p99, count, sum, spread, mad_z, distinct or equals."},
			{Name: "per", Type: "text", Default: "the metric's finest level", Doc: "What is judged on its own: a level of the metric's subject, a column of the layout, or \"test\" for everything together."},
			{Name: "at", Type: "object", Doc: "The labels of the measurements that are judged, such as { size = \"16GiB\" }."},
			{Name: "min", Type: "number", Doc: "The lower bound; it is met."},
			{Name: "max", Type: "number", Doc: "The upper bound; it is met."},
			{Name: "equals", Type: "text", Doc: "The text that a fact must be."},
			{Name: "unit", Type: "text", Doc: "The unit of the bound. It must be the one that the check reports: nothing is converted. Required with min and max."},
			{Name: "basis", Type: "text", Required: true, Doc: "Why this number."},
			{Name: "min_samples", Type: "whole number", Doc: "How many measurements are needed for each thing that is judged on its own; for mad_z, how many subjects are compared."},
			later("guard", "number", "A band inside the bound that is not a pass."),
			later("class", "text", "How grave a failure is, for reserves."),
			later("abort_on_fail", "text", "What is ended at once when the bound is missed."),
			later("against", "test", "The test that stat = \"change\" compares with."),
		},
	}
}

func faultBlock() Block {
	return Block{
		Type: "fault", Label: "kind", Extends: "fault", Doc: "Something that is broken on purpose, and mended again. The kind picks further arguments.",
		Arguments: []Argument{
			{Name: "nodes", Type: "fleet or nodeset", Required: true, Doc: "Where: nodes of the test."},
			{Name: "part", Type: "text", Doc: "What part of the node the fault is in, for those who read the evidence."},
			{Name: "after", Type: "duration", Default: "0s", Doc: "How long after the start."},
			{Name: "for", Type: "duration", Doc: "How long until it is undone; without it, at once."},
		},
	}
}

func releaseBlock() Block {
	return Block{
		Type: "release", Label: "name", Doc: "The rule by which part of the fleet, or all of it, is released.",
		Arguments: []Argument{
			{Name: "nodes", Type: "fleet or nodeset", Required: true, Doc: "What is released."},
			{Name: "require", Type: "list of phase", Required: true, Doc: "The phases in which all of it must pass."},
			{Name: "waivers", Type: "whole number", Default: "0", Doc: "How many failed findings may be waived. This build knows 0."},
			later("approvals", "list of approval", "Approvals that must be there."),
			later("by", "list of owner", "Who decides."),
			later("quorum", "object", "How many of each party."),
			later("reserves", "object", "Failures that are accepted with a date."),
			later("retried", "whole number", "How many cells may have passed on a later attempt."),
			later("valid_for", "duration", "When the release expires."),
			later("void_if", "list of text", "What voids it."),
		},
	}
}

// TrustSchema is the language of trust policies, as data.
func TrustSchema() Block {
	return Block{
		Doc: "A trust policy is one file with one trust block. It never comes from the evidence.",
		Blocks: []Block{{
			Type: "trust", Label: "name", Required: true, Single: true, Doc: "Whom and what a verifier trusts.",
			Blocks: []Block{
				{
					Type: "key", Label: "name", Required: true, Doc: "A public key and who answers for it.",
					Arguments: []Argument{
						{Name: "file", Type: "path", Required: true, Doc: "Its file in PEM, relative to the policy's folder."},
						{Name: "owner", Type: "text", Required: true, Doc: "Who answers for it; a quorum counts owners."},
						{Name: "not_after", Type: "date", Doc: "The last day, in UTC, or the last moment in RFC 3339, at which it is good."},
					},
				},
				{
					Type: "role", Label: "name", Required: true, Doc: "What keys may sign. The role operator signs runs.",
					Arguments: []Argument{
						{Name: "any_of", Type: "list of key", Required: true, Doc: "The keys of the role."},
						{Name: "quorum", Type: "whole number", Default: "1", Doc: "How many distinct owners must sign."},
					},
				},
				{
					Type: "require", Single: true, Doc: "What must hold beside the signature.",
					Arguments: []Argument{
						{Name: "level", Type: "text", Default: "\"reproduced\"", Doc: "The least trust level: intact, attested or reproduced."},
						{Name: "max_age", Type: "duration", Default: "no limit", Doc: "How old a run may be, such as \"30d\"."},
						{Name: "runbooks", Type: "list of digest", Default: "every runbook", Doc: "The runbooks that are accepted, by digest."},
						{Name: "approved", Type: "bool", Default: "false", Doc: "Approvals must meet their quorum."},
					},
				},
				{
					Type: "accept", Single: true, Doc: "What is put up with. Nothing is, by default.",
					Arguments: []Argument{
						{Name: "simulated", Type: "bool", Default: "false", Doc: "Runs on a simulated rack."},
						{Name: "narrowed", Type: "bool", Default: "false", Doc: "Runs of which a part was left out by a flag."},
						{Name: "off_contract", Type: "bool", Default: "false", Doc: "Runs with a variable off its contract."},
						{Name: "retried", Type: "whole number", Default: "0", Doc: "So many cells that passed on a later attempt."},
						{Name: "interrupted", Type: "whole number", Default: "0", Doc: "So many attempts that were cut by the runner's end or a stop."},
					},
				},
			},
		}},
	}
}
