package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newHelpCmd takes the place of cobra's own, which exits 0 for a topic that is
// not there.
func newHelpCmd(p *Process) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND|TOPIC]",
		Short: "Explain a command or a topic",
		Long:  "Explain a command, or one of the topics that rackproof help lists.",
		Example: `  rackproof help run
  rackproof help exit-codes`,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				names = append(names, c.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		// A wrong colour in the environment must not keep help from explaining it.
		PersistentPreRun: func(*cobra.Command, []string) {},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return p.unknownCommand(found, append(rest, args...)[0])
			}
			return found.Help()
		},
	}
}

// asGroup makes a command that only holds others show its help, and refuse
// what it does not hold.
func asGroup(p *Process, cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return p.unknownCommand(cmd, args[0])
		}
		return cmd.Help()
	}
}

// unknownCommand is the usage error of a word that is no command of cmd.
func (p *Process) unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := didYouMean(cmd.SuggestionsFor(name), cmd.CommandPath()+" --help lists the commands")
	if !cmd.HasParent() {
		hint = didYouMean(cmd.SuggestionsFor(name), "rackproof help lists the commands")
		if corrected := commandFirst(cmd, p.Args, name); corrected != "" {
			hint = "the command comes first: " + corrected
		}
	}
	return fail(ExitUsage, fmt.Errorf("unknown command %q", name), hint)
}

// commandFirst is the command line with its command in front, where one
// stands behind the argument name.
func commandFirst(root *cobra.Command, args []string, name string) string {
	seen := false
	for i, arg := range args {
		if arg == name {
			seen = true
			continue
		}
		for _, c := range root.Commands() {
			if seen && c.Runnable() && c.Name() == arg {
				words := append([]string{root.Name(), arg}, args[:i]...)
				return strings.Join(append(words, args[i+1:]...), " ")
			}
		}
	}
	if strings.HasSuffix(name, runbookSuffix) {
		return strings.Join([]string{root.Name(), "validate", name}, " ")
	}
	return ""
}
