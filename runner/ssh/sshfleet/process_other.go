//go:build !linux

package sshfleet

import (
	"errors"
	"syscall"
)

// errLinux says what a fleet needs: a whole /8 of loopback addresses and /proc.
var errLinux = errors.New("a fleet of loopback nodes needs Linux")

func serverProcess() *syscall.SysProcAttr { return nil }

// Freeze needs Linux.
func (n *Node) Freeze() error { return errLinux }

// Thaw needs Linux.
func (n *Node) Thaw() error { return errLinux }

// Kill ends the server.
func (n *Node) Kill() error {
	n.mu.Lock()
	process, exited := n.process, n.exited
	n.process, n.exited = nil, nil
	n.mu.Unlock()
	if process == nil {
		return nil
	}
	_ = process.Process.Kill()
	<-exited
	return nil
}
