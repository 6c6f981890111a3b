//go:build !linux && !darwin && !freebsd

package evidence

import (
	"errors"
	"os"
)

var errNoRuns = errors.New("runs can be read on this system, and made on Linux, macOS and FreeBSD only")

func tryLock(*os.File) (bool, error) { return false, errNoRuns }

func freeBytes(string) (uint64, error) { return 0, errNoRuns }
