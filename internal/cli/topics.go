package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpTopics are commands that do nothing but be read.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "environment", Short: "Environment variables that rackproof reads", Long: environmentTopic()},
		{Use: "exit-codes", Short: "What each exit code means", Long: exitTopic()},
		{Use: "json", Short: "The JSON that rackproof prints", Long: jsonTopic},
	}
}

func environmentTopic() string {
	var out strings.Builder
	out.WriteString(`A flag rules over its variable. No variable changes what is judged or allowed.

`)
	row := func(name, meaning string) { fmt.Fprintf(&out, "  %-22s %s\n", name, meaning) }
	for _, flag := range fromEnvironment {
		row(environmentName(flag), "the value of --"+flag)
	}
	row("RACKPROOF_VAR_name", "the value of the runbook's variable \"name\"; recorded in the plan")
	row("NO_COLOR", "no colour when it is set")
	row("TERM", "no colour and no live view when it is \"dumb\"")
	row("HOME, SSH_AUTH_SOCK", "where the ssh executor finds ~/.ssh/config and the agent")
	out.WriteString(`
Secrets never go into flags or runbooks. A passphrase is read from env://NAME,
from a file, or from a prompt: see --passphrase.`)
	return out.String()
}

func exitTopic() string {
	var out strings.Builder
	for _, row := range exitTable {
		fmt.Fprintf(&out, "  %3d  %s (%s)\n", row.code, row.meaning, row.typical)
	}
	out.WriteString(`
The worst applies, in the order 5, 3, 4, 6, 7. "report" and "inspect" only
render: they exit 0 whatever the verdict. A trusted bundle whose verdict is
fail makes "verify" exit 3, an untrusted one 5.`)
	return out.String()
}

const trustTopic = `"rackproof verify" takes seven steps:

  1 files         every byte matches the manifest, and there is no other file
  2 signature     a key that your trust policy binds to the operator signed it
  3 approvals     the approvals that plan and policy ask for are there
  4 plan          the enclosed runbook compiles to the enclosed plan
  5 measurements  the raw files give the enclosed measurements again
  6 verdict       the measurements give the enclosed verdict again
  7 release       the rules of the release and of your policy hold today

They end in a level: unknown < intact (1) < attested (1, 2) < reproduced
(1, 2, 4, 5, 6). A step that was not checked never counts as ok.

The policy is a file of your own. It never comes from the bundle:

  trust "customer" {
    key "operator" {
      file  = "keys/operator.pub"
      owner = "vendor"
    }
    role "operator" {
      any_of = [key.operator]
      quorum = 1
    }
    require {
      level = "reproduced"
    }
  }

"rackproof trust init --key keys/operator.pub -o trust.hcl" writes one. Times
are claimed: without a timestamp authority nothing proves them.`

const jsonTopic = `Commands that end print one JSON document on stdout with --json, whatever the
exit code. Each starts with its mediaType, application/vnd.rackproof.<kind>.v1+json,
and a minor: a minor adds, a major breaks.

"run" and "resume" print one JSON object a line. The first has the type
"version"; then come "plan", "cell_start", "cell_progress" (each half minute,
for every cell that runs), "cell_end", "gate", "fault", "verdict" and
"diagnostic"; where the exit code is not 0 the last is "error".
Ignore types and members that you do not know.

A command that fails before it has a document prints the kind "failure": the
exit code, the error, the hints and the diagnostics of the runbook.

Outcomes are words: pass, inconclusive, error, fail. Digests are "sha256:" and
64 hex digits. Times are RFC 3339 in UTC, and claimed by the runner's clock.`
