package sshserver

import (
	"errors"

	"github.com/rackproof/rackproof/runner"
)

// CommandOf is a supervised command as this server's handlers get it.
func CommandOf(s runner.Supervised) Command {
	return Command{Argv: s.Argv, Env: s.Env, Stdin: s.Stdin, Deadline: s.Deadline, Grace: s.Grace, LinePrefix: s.LinePrefix()}
}

// ParseCommand reads the command line of a supervised command; it is a
// Config.Parse.
func ParseCommand(line string) (Command, error) {
	s, err := runner.ParseSupervised(line)
	if err != nil {
		return Command{}, err
	}
	return CommandOf(s), nil
}

// ParseAny reads, beside supervised commands, what somebody types by hand:
// words that no shell would change.
func ParseAny(line string) (Command, error) {
	if c, err := ParseCommand(line); err == nil {
		return c, nil
	}
	words, err := runner.Unquote(line)
	if err != nil {
		return Command{}, err
	}
	if len(words) == 0 || words[0] == "exec" {
		return Command{}, errors.New("the command is empty, or another supervisor's")
	}
	return Command{Argv: words, Grace: runner.Grace}, nil
}
