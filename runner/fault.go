package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// FaultKind is something that a test can break on purpose.
type FaultKind struct {
	Name   string
	Doc    string
	Params []evidence.Param
	// Commands are the argv that inject and undo f on one of its nodes. An
	// empty undo means that there is nothing to undo. The error is shown at
	// the fault's block.
	Commands func(f evidence.Fault) (inject, undo []string, err error)
}

// Faults lists the kinds of fault of this build.
func Faults() []FaultKind {
	return []FaultKind{
		{
			Name: "process_kill",
			Doc:  "Kills a process with SIGKILL. A process that is not there is a fault that was not injected.",
			Params: []evidence.Param{
				{Name: "pidfile", Type: evidence.ParamString, Doc: "Absolute path of the file on the node that holds the process id. Either this or process."},
				{Name: "process", Type: evidence.ParamString, Doc: "Exact name of the process, as in /proc/PID/comm: at most 15 bytes. Either this or pidfile."},
				{Name: "undo", Type: evidence.ParamArgv, Doc: "Command that starts the process again; without it nothing is undone."},
			},
			Commands: processKill,
		},
		{
			Name: "service_stop",
			Doc:  "Stops a service, and starts it again.",
			Params: []evidence.Param{
				{Name: "service", Type: evidence.ParamString, Required: true, Doc: "Name of the service."},
				{Name: "manager", Type: evidence.ParamString, Default: "systemctl", Enum: []string{"systemctl", "service"}, Doc: "The command that stops and starts it."},
			},
			Commands: serviceStop,
		},
		{
			Name: "command",
			Doc:  "Runs a command that breaks something, and another that mends it.",
			Params: []evidence.Param{
				{Name: "inject", Type: evidence.ParamArgv, Required: true, Doc: "Command that injects the fault; it must exit with 0."},
				{Name: "undo", Type: evidence.ParamArgv, Required: true, Empty: true, Doc: "Command that undoes it; an empty list says that there is nothing to undo."},
			},
			Commands: commandFault,
		},
	}
}

func findFault(kind string) (FaultKind, error) {
	var names []string
	for _, k := range Faults() {
		if k.Name == kind {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return FaultKind{}, fmt.Errorf("fault %q is not known: want one of %s", kind, strings.Join(names, ", "))
}

// commLength is TASK_COMM_LEN of Linux without its terminating zero: pkill -x
// compares names that long, so a longer one never matches.
const commLength = 15

func processKill(f evidence.Fault) (inject, undo []string, err error) {
	var args struct {
		PIDFile string   `json:"pidfile"`
		Process string   `json:"process"`
		Undo    []string `json:"undo"`
	}
	if err := decodeArgs(f, &args); err != nil {
		return nil, nil, err
	}
	switch {
	case (args.PIDFile == "") == (args.Process == ""):
		return nil, nil, errors.New("fault process_kill: want exactly one of pidfile and process")
	case args.PIDFile != "" && !path.IsAbs(args.PIDFile):
		return nil, nil, fmt.Errorf("fault process_kill: pidfile %q: want an absolute path on the node", args.PIDFile)
	case len(args.Process) > commLength:
		return nil, nil, fmt.Errorf("fault process_kill: process %q: the kernel keeps %d bytes of a name, so this never matches: want %q, or a pidfile",
			args.Process, commLength, args.Process[:commLength])
	case len(args.Undo) > 0 && args.Undo[0] == "":
		return nil, nil, errors.New("fault process_kill: undo has no command")
	case args.PIDFile != "":
		return []string{"pkill", "-KILL", "-F", args.PIDFile}, args.Undo, nil
	}
	// The name is an extended regular expression to pkill.
	return []string{"pkill", "-KILL", "-x", "--", regexp.QuoteMeta(args.Process)}, args.Undo, nil
}

var serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9@._:\\-]*$`)

func serviceStop(f evidence.Fault) (inject, undo []string, err error) {
	var args struct {
		Service string `json:"service"`
		Manager string `json:"manager"`
	}
	if err := decodeArgs(f, &args); err != nil {
		return nil, nil, err
	}
	if !serviceName.MatchString(args.Service) {
		return nil, nil, fmt.Errorf("fault service_stop: service %q is not the name of a service", args.Service)
	}
	switch args.Manager {
	case "", "systemctl":
		return []string{"systemctl", "stop", args.Service}, []string{"systemctl", "start", args.Service}, nil
	case "service":
		return []string{"service", args.Service, "stop"}, []string{"service", args.Service, "start"}, nil
	}
	return nil, nil, fmt.Errorf("fault service_stop: manager %q: want systemctl or service", args.Manager)
}

func commandFault(f evidence.Fault) (inject, undo []string, err error) {
	var args struct {
		Inject []string  `json:"inject"`
		Undo   *[]string `json:"undo"`
	}
	if err := decodeArgs(f, &args); err != nil {
		return nil, nil, err
	}
	switch {
	case len(args.Inject) == 0 || args.Inject[0] == "":
		return nil, nil, errors.New("fault command: inject has no command")
	case args.Undo == nil:
		return nil, nil, errors.New("fault command: undo is missing: give the command that mends it, or [] where nothing can be undone")
	case len(*args.Undo) > 0 && (*args.Undo)[0] == "":
		return nil, nil, errors.New("fault command: undo has no command")
	}
	return args.Inject, *args.Undo, nil
}

func decodeArgs(f evidence.Fault, into any) error {
	raw := f.Args
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("fault %s: arguments: %w", f.Kind, err)
	}
	return nil
}
