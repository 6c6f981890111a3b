//go:build !unix

package local

import (
	"os"
	"syscall"

	"github.com/rackproof/rackproof/runner"
)

func ownSession() *syscall.SysProcAttr { return nil }

func ending(state *os.ProcessState) runner.Ending {
	code := state.ExitCode()
	return runner.Ending{Code: &code}
}
