package sshfleet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

// Endpoint is the node's address with its port.
func (n *Node) Endpoint() string { return net.JoinHostPort(n.Address, strconv.Itoa(n.fleet.Port)) }

// makeKeys makes the host keys and the line of known_hosts.
func (n *Node) makeKeys() error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	for i, kind := range n.keyTypes() {
		public, err := n.makeKey(kind)
		if err != nil {
			return err
		}
		if i == 0 {
			n.known = fmt.Sprintf("[%s]:%d %s", n.Address, n.fleet.Port, ssh.MarshalAuthorizedKey(public))
		}
	}
	return nil
}

func (n *Node) keyTypes() []string {
	if len(n.options.HostKeys) == 0 {
		return []string{"ed25519"}
	}
	return n.options.HostKeys
}

func (n *Node) keyFile(kind string) string { return filepath.Join(n.dir, "host_"+kind) }

func (n *Node) makeKey(kind string) (ssh.PublicKey, error) {
	var private any
	var err error
	switch kind {
	case "ed25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		return nil, fmt.Errorf("%s: host key of type %q: want ed25519, ecdsa or rsa", n.Name, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: make a host key: %w", n.Name, err)
	}
	signer, err := writeKey(n.keyFile(kind), private)
	if err != nil {
		return nil, err
	}
	return signer.PublicKey(), nil
}

// mark is in the environment of everything that the node's server starts.
func (n *Node) mark() string { return "SSHFLEET_NODE=" + n.dir }

// writeConfig writes sshd_config. MaxStartups and MaxSessions keep their
// defaults, as on real hosts.
func (n *Node) writeConfig() (string, error) {
	var c bytes.Buffer
	for _, line := range n.options.Lines {
		fmt.Fprintln(&c, line)
	}
	for _, kind := range n.keyTypes() {
		fmt.Fprintf(&c, "HostKey %q\n", n.keyFile(kind))
	}
	env := map[string]string{
		// bash that finds no SHLVL takes itself for one started by sshd and
		// reads ~/.bashrc.
		"SHLVL":         "1",
		"SSHFLEET_NODE": n.dir,
	}
	maps.Copy(env, n.options.SetEnv)
	fmt.Fprintf(&c, `ListenAddress %s
Port %d
AuthorizedKeysFile "%s"
PidFile none
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
X11Forwarding no
LogLevel VERBOSE
SetEnv %s
`, n.Address, n.fleet.Port, filepath.Join(n.fleet.Dir, "authorized_keys"), quoteEnv(env, slices.Sorted(maps.Keys(env))))
	path := filepath.Join(n.dir, "sshd_config")
	if err := os.WriteFile(path, c.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("%s: %w", n.Name, err)
	}
	return path, nil
}

// start starts the server; it does not wait for it.
func (n *Node) start() error {
	config, err := n.writeConfig()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	n.logged = int(info.Size())
	argv := append(slices.Clone(n.options.Wrap), n.fleet.sshd, "-D", "-e", "-f", config)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), n.mark())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = serverProcess()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: start %s: %w", n.Name, argv[0], err)
	}
	exited := make(chan struct{})
	// The wait ends with the server, which Kill ends and waits for.
	go func() { defer close(exited); _ = cmd.Wait() }()
	n.mu.Lock()
	n.process, n.exited = cmd, exited
	n.mu.Unlock()
	return nil
}

// Log is the file that the server logs to.
func (n *Node) Log() string { return filepath.Join(n.dir, "sshd.log") }

// await waits until the server says that it listens. It does not connect:
// that would cost as much as the start, and be in the log.
func (n *Node) await(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, startClock)
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		said, err := os.ReadFile(n.Log())
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if bytes.Contains(said[n.logged:], []byte("Server listening on "+n.Address+" ")) {
			return nil
		}
		select {
		case <-n.exited:
			said, _ := os.ReadFile(n.Log())
			return fmt.Errorf("%s: sshd did not start: %s", n.Name, bytes.TrimSpace(said[min(n.logged, len(said)):]))
		case <-ctx.Done():
			return fmt.Errorf("%s: sshd does not listen at %s: %w", n.Name, n.Endpoint(), ctx.Err())
		case <-tick.C:
		}
	}
}

// Start starts the server of a node that was killed, and waits for it.
func (n *Node) Start(ctx context.Context) error {
	if err := n.start(); err != nil {
		return err
	}
	return n.await(ctx)
}

// ReplaceHostKey gives the server a new host key of its first type, as if the
// machine had been changed, and starts it again; known_hosts keeps the old
// one.
func (n *Node) ReplaceHostKey(ctx context.Context) error {
	if err := n.Kill(); err != nil {
		return err
	}
	if _, err := n.makeKey(n.keyTypes()[0]); err != nil {
		return err
	}
	return n.Start(ctx)
}
