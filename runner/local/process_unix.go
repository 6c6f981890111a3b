//go:build unix

package local

import (
	"os"
	"strings"
	"syscall"

	"github.com/rackproof/rackproof/runner"
)

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func ending(state *os.ProcessState) runner.Ending {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return runner.Ending{Signal: signalName(status.Signal())}
	}
	code := state.ExitCode()
	return runner.Ending{Code: &code}
}

// signalNames are the names that RFC 4254, section 6.10, gives to signals,
// and the others of POSIX that end a process.
var signalNames = map[syscall.Signal]string{
	syscall.SIGABRT: "ABRT", syscall.SIGALRM: "ALRM", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
	syscall.SIGHUP: "HUP", syscall.SIGILL: "ILL", syscall.SIGINT: "INT", syscall.SIGKILL: "KILL",
	syscall.SIGPIPE: "PIPE", syscall.SIGQUIT: "QUIT", syscall.SIGSEGV: "SEGV", syscall.SIGSYS: "SYS",
	syscall.SIGTERM: "TERM", syscall.SIGTRAP: "TRAP", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	syscall.SIGXCPU: "XCPU", syscall.SIGXFSZ: "XFSZ",
}

func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return strings.ReplaceAll(strings.ToUpper(s.String()), " ", "-")
}
