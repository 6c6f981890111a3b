// Package sshfleet raises real OpenSSH servers on loopback addresses, one a
// node, for tests and examples: each node has an address, a host key and a
// server of its own.
package sshfleet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options say what fleet to raise.
type Options struct {
	// Dir gets every file: keys, ssh_config, known_hosts, one folder a node.
	// It is made if it is not there.
	Dir string
	// N nodes are named Prefix ("n" if empty) and a number from 1, padded to
	// the width of N.
	N      int
	Prefix string
	// Node changes the settings of one node; nil changes nothing.
	Node func(name string) NodeOptions
}

// NodeOptions are the settings of one node's server.
type NodeOptions struct {
	// SetEnv is set for every session: PATH without a tool, LD_PRELOAD.
	SetEnv map[string]string
	// Lines come first in sshd_config, so that they win.
	Lines []string
	// HostKeys are the types of the host keys that the server has: ed25519,
	// ecdsa, rsa. The first one alone is written to known_hosts. Empty means
	// ed25519.
	HostKeys []string
	// Wrap is put before the server's command line and must end by executing
	// it: unshare and a mount, for a node that sees another filesystem.
	Wrap []string
}

// Fleet is a raised fleet.
type Fleet struct {
	Dir        string
	SSHConfig  string // file: ssh -F
	KnownHosts string // file
	Identity   string // file: the client's private key
	User       string
	Port       int

	sshd  string
	nodes []*Node
}

// Node is one server.
type Node struct {
	Name    string
	Address string // without the port

	fleet   *Fleet
	options NodeOptions
	dir     string
	known   string // the line of known_hosts
	logged  int    // bytes of the log before the last start

	mu      sync.Mutex
	process *exec.Cmd
	exited  chan struct{}
}

// maxNodes is one /24 of loopback addresses for every 250 nodes, up to 127.1.15.250.
const maxNodes = 4000

// startClock is how long a server may take to accept connections.
const startClock = 20 * time.Second

// lookSSHD finds OpenSSH's server.
func lookSSHD() (string, error) {
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/lib/ssh/sshd"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", errors.New("raise a fleet: /usr/sbin/sshd is not there: install Debian's package openssh-server (its own service need not run)")
}

// Up raises a fleet and returns when every node accepts connections. On an
// error nothing is left running.
func Up(ctx context.Context, o Options) (_ *Fleet, err error) {
	if o.N < 1 || o.N > maxNodes {
		return nil, fmt.Errorf("raise a fleet of %d nodes: want 1 to %d", o.N, maxNodes)
	}
	if o.Prefix == "" {
		o.Prefix = "n"
	}
	sshd, err := lookSSHD()
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("raise a fleet: who runs it: %w", err)
	}
	if me.Uid == "0" {
		// Where Debian's own service never ran this is missing, and sshd as
		// root refuses to start.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return nil, fmt.Errorf("raise a fleet: %w", err)
		}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("raise a fleet: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("raise a fleet: %w", err)
	}
	f := &Fleet{
		Dir: dir, SSHConfig: filepath.Join(dir, "ssh_config"), KnownHosts: filepath.Join(dir, "known_hosts"),
		Identity: filepath.Join(dir, "id_client"), User: me.Username, sshd: sshd,
	}
	if err := f.writeIdentity(); err != nil {
		return nil, err
	}
	width := len(strconv.Itoa(o.N))
	for i := range o.N {
		n := &Node{
			Name:    fmt.Sprintf("%s%0*d", o.Prefix, width, i+1),
			Address: fmt.Sprintf("127.1.%d.%d", i/250, i%250+1),
			fleet:   f,
		}
		n.dir = filepath.Join(dir, n.Name)
		if o.Node != nil {
			n.options = o.Node(n.Name)
		}
		f.nodes = append(f.nodes, n)
	}
	if f.Port, err = freePort(ctx, f.nodes); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, n := range f.nodes {
		if err := n.makeKeys(); err != nil {
			return nil, err
		}
	}
	if err := f.writeClientFiles(); err != nil {
		return nil, err
	}
	for _, n := range f.nodes {
		if err := n.start(); err != nil {
			return nil, err
		}
	}
	for _, n := range f.nodes {
		if err := n.await(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Names are the nodes' names, in order.
func (f *Fleet) Names() []string {
	names := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		names[i] = n.Name
	}
	return names
}

// Node is the node of that name, or nil.
func (f *Fleet) Node(name string) *Node {
	for _, n := range f.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Close ends every server and every session and command that they started,
// and waits until they are gone.
func (f *Fleet) Close() error {
	var errs []error
	for _, n := range f.nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// freePort finds a port that is free at every node's address.
func freePort(ctx context.Context, nodes []*Node) (int, error) {
	var listen net.ListenConfig
	var lastErr error
	for range 20 {
		first, err := listen.Listen(ctx, "tcp", nodes[0].Address+":0")
		if err != nil {
			return 0, fmt.Errorf("raise a fleet: %s: %w", nodes[0].Address, err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		lastErr = nil
		for _, n := range nodes[1:] {
			l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(n.Address, strconv.Itoa(port)))
			if err != nil {
				lastErr = err
				break
			}
			l.Close()
		}
		first.Close()
		if lastErr == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("raise a fleet: no port is free at every address: %w", lastErr)
}

// writeIdentity makes the client's key.
func (f *Fleet) writeIdentity() error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("raise a fleet: make the client's key: %w", err)
	}
	signer, err := writeKey(f.Identity, private)
	if err != nil {
		return err
	}
	line := ssh.MarshalAuthorizedKey(signer.PublicKey())
	for _, path := range []string{f.Identity + ".pub", filepath.Join(f.Dir, "authorized_keys")} {
		if err := os.WriteFile(path, line, 0o600); err != nil {
			return fmt.Errorf("raise a fleet: %w", err)
		}
	}
	return nil
}

func writeKey(path string, private any) (ssh.Signer, error) {
	block, err := ssh.MarshalPrivateKey(private, "sshfleet")
	if err != nil {
		return nil, fmt.Errorf("raise a fleet: encode %s: %w", path, err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, fmt.Errorf("raise a fleet: %w", err)
	}
	return ssh.NewSignerFromKey(private)
}

// writeClientFiles writes ssh_config and known_hosts.
func (f *Fleet) writeClientFiles() error {
	var config, known bytes.Buffer
	for _, n := range f.nodes {
		fmt.Fprintf(&config, "Host %s\n  HostName %s\n\n", n.Name, n.Address)
		known.WriteString(n.known)
	}
	fmt.Fprintf(&config, "Host *\n  Port %d\n  User %s\n  IdentityFile \"%s\"\n  IdentitiesOnly yes\n  UserKnownHostsFile \"%s\"\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n",
		f.Port, f.User, f.Identity, f.KnownHosts)
	if err := os.WriteFile(f.SSHConfig, config.Bytes(), 0o600); err != nil {
		return fmt.Errorf("raise a fleet: %w", err)
	}
	if err := os.WriteFile(f.KnownHosts, known.Bytes(), 0o600); err != nil {
		return fmt.Errorf("raise a fleet: %w", err)
	}
	return nil
}

func quoteEnv(env map[string]string, names []string) string {
	var words []string
	for _, name := range names {
		words = append(words, fmt.Sprintf("%q", name+"="+env[name]))
	}
	return strings.Join(words, " ")
}
