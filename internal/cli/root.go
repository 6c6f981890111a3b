package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Main runs the command line of p and returns the exit code.
func Main(p *Process) int {
	out := &watchedWriter{w: p.Stdout}
	own := *p
	own.Stdout = out
	cmd, err := newRoot(&own).ExecuteContextC(own.Context)
	if err != nil {
		printError(own.Stderr, err)
		if unsaid := own.printFailure(cmd, out, err); unsaid != nil {
			printError(own.Stderr, unsaid)
		}
	}
	return int(exitOf(err))
}

func newRoot(p *Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "rackproof",
		Short: "Acceptance tests for GPU clusters, with evidence that others can verify",
		Long: `rackproof runs the acceptance tests that a runbook declares, keeps every raw
byte that the tools printed, judges it, and seals it all into evidence that
anyone can verify offline.

No measurement is ever a pass: what was not measured is inconclusive, by name.`,
		Example: `  rackproof validate pod7.runbook.hcl
  rackproof run pod7.runbook.hcl --key keys/operator.key`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return p.fillFromEnvironment(cmd) },
	}
	asGroup(p, root)
	root.SetHelpCommand(newHelpCmd(p))
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(p.flagError)
	root.PersistentFlags().String("color", "auto", "colour: auto, always or never")
	readsEnvironment(root, "color")
	for _, command := range []*cobra.Command{
		newValidateCmd(p), newPlanCmd(p), newRunCmd(p), newResumeCmd(p), newUndoCmd(p), newReportCmd(p),
		newSignCmd(p), newVerifyCmd(p), newInspectCmd(p), newKeygenCmd(p), newTrustCmd(p), newChecksCmd(p), newLabCmd(p), newVersionCmd(p),
	} {
		asUsage(command)
		root.AddCommand(command)
	}
	root.AddCommand(helpTopics()...)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			asGroup(p, cmd)
			cmd.Example = `  rackproof completion bash > /etc/bash_completion.d/rackproof
  rackproof completion zsh > "${fpath[1]}/_rackproof"`
		}
	}
	return root
}

// asUsage makes a wrong number of arguments a usage error, with the usage
// line as its hint.
func asUsage(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		asUsage(sub)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fail(ExitUsage, err, "usage: "+cmd.UseLine())
		}
		return nil
	}
}

// flagError is a mistake in a flag: a usage error with the nearest flag.
func (p *Process) flagError(cmd *cobra.Command, err error) error {
	if !cmd.HasParent() {
		for _, arg := range cmd.Flags().Args() {
			return p.unknownCommand(cmd, arg)
		}
	}
	hint := "usage: " + cmd.UseLine()
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		hint = didYouMean(nearestFlags(cmd, name), hint)
	}
	return fail(ExitUsage, err, hint)
}

var flagName = regexp.MustCompile(`--([a-z][a-z-]*)`)

// nearestFlags asks cobra's own nearness of command names.
func nearestFlags(cmd *cobra.Command, name string) []string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, match := range flagName.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		if cmd.Flags().Lookup(match[1]) != nil {
			names.AddCommand(&cobra.Command{Use: match[1], Run: func(*cobra.Command, []string) {}})
		}
	}
	near := names.SuggestionsFor(name)
	slices.Sort(near)
	near = slices.Compact(near)
	for i := range near {
		near[i] = "--" + near[i]
	}
	return near
}

func didYouMean(near []string, otherwise string) string {
	if len(near) == 0 {
		return otherwise
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// fromEnvironment lists the flags that RACKPROOF_<FLAG> can set: how to
// connect, show and sign, never what is judged or allowed. A command marks its
// own with readsEnvironment.
var fromEnvironment = []string{"color", "dir", "key", "no-input", "passphrase", "trust"}

const environmentMark = "environment"

// readsEnvironment lets the named flags of cmd, which it must have, be set by
// their variables.
func readsEnvironment(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if flag := cmd.Flag(name); flag != nil {
			flag.Annotations = map[string][]string{environmentMark: nil}
		}
	}
}

func environmentName(flag string) string {
	return "RACKPROOF_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (p *Process) fillFromEnvironment(cmd *cobra.Command) error {
	flags := cmd.Flags()
	color := "--color"
	for _, name := range fromEnvironment {
		flag := flags.Lookup(name)
		value := p.getenv(environmentName(name))
		if flag == nil || flag.Changed || value == "" {
			continue
		}
		if _, reads := flag.Annotations[environmentMark]; !reads {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return usageError("%s: %w", environmentName(name), err)
		}
		if name == "color" {
			color = environmentName(name)
		}
	}
	switch mode, err := flags.GetString("color"); {
	case err != nil:
		return err
	case mode != "auto" && mode != "always" && mode != "never":
		return usageError("%s %q: want auto, always or never", color, mode)
	}
	return nil
}

// colored reports whether a stream is shown in colour.
func (p *Process) colored(cmd *cobra.Command, tty bool) bool {
	switch mode, _ := cmd.Flags().GetString("color"); mode {
	case "always":
		return true
	case "never":
		return false
	}
	return tty && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}

// plainPath shortens the error of a file that is not there, which says its
// path twice.
func plainPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
