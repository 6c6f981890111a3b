package ssh

import (
	"net"
	"syscall"
)

// quickAck asks the kernel to acknowledge at once. It is a hint: the kernel
// forgets it, and no failure matters.
func quickAck(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}
