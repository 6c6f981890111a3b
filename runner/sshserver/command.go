package sshserver

import "github.com/rackproof/rackproof/runner"

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
