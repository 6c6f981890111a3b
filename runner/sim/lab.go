package sim

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// Lab is a simulated rack that answers over SSH: one server a node, on
// loopback, at a port of its own.
type Lab struct {
	Nodes *Nodes

	servers []*sshserver.Server // in fleet order
}

// Access are the files by which the lab's nodes are reached.
type Access struct {
	SSHConfig  string // an entry for each node, with the user and the key
	KnownHosts string
}

// accessFiles are their names in the lab's folder.
const (
	sshConfigFile  = "ssh_config"
	knownHostsFile = "known_hosts"
	userKeyFile    = "id_ed25519"
)

// Serve raises a server for every node and writes into dir, which must be
// there, how to reach them. The nodes' host keys come of the seed, so that the
// same rack raised again has the same.
func Serve(ctx context.Context, nodes *Nodes, dir string) (lab *Lab, access Access, err error) {
	if strings.ContainsAny(dir, "\"\n") {
		return nil, Access{}, fmt.Errorf("simulated rack in %q: ssh_config cannot name a path with a double quote or a line end: use another folder", dir)
	}
	if err := freeFolder(dir); err != nil {
		return nil, Access{}, err
	}
	public, text, err := newUserKey()
	if err != nil {
		return nil, Access{}, err
	}
	lab = &Lab{Nodes: nodes}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close())
		}
	}()
	var config, hosts bytes.Buffer
	config.WriteString(labHeading)
	for _, n := range nodes.Rack.Nodes() {
		server, err := lab.raise(ctx, n, public)
		if err != nil {
			return lab, Access{}, err
		}
		addr := server.Addr()
		fmt.Fprintf(&config, "Host %s\n  HostName %s\n  Port %d\n  User root\n  IdentityFile %s\n  IdentitiesOnly yes\n",
			n.Name, addr.IP, addr.Port, quoted(filepath.Join(dir, userKeyFile)))
		fmt.Fprintf(&hosts, "[%s]:%d %s", addr.IP, addr.Port, ssh.MarshalAuthorizedKey(server.HostKey()))
	}
	access = Access{SSHConfig: filepath.Join(dir, sshConfigFile), KnownHosts: filepath.Join(dir, knownHostsFile)}
	for _, file := range []struct {
		path string
		text []byte
	}{
		{filepath.Join(dir, userKeyFile), text}, {access.SSHConfig, config.Bytes()}, {access.KnownHosts, hosts.Bytes()},
	} {
		if err := os.WriteFile(file.path, file.text, 0o600); err != nil {
			return lab, Access{}, fmt.Errorf("simulated rack: %w", err)
		}
	}
	return lab, access, nil
}

// labHeading begins the ssh_config of a lab.
const labHeading = "# Nodes of a simulated rack: no real machine answers here.\n"

// freeFolder refuses a folder that has files by the lab's names and is not an
// earlier lab's: somebody's ~/.ssh has all three.
func freeFolder(dir string) error {
	config, err := os.ReadFile(filepath.Join(dir, sshConfigFile))
	if err == nil && strings.HasPrefix(string(config), labHeading) {
		return nil
	}
	for _, name := range []string{sshConfigFile, knownHostsFile, userKeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("simulated rack: %s is there, and no lab has made it: use another folder", filepath.Join(dir, name))
		}
	}
	return nil
}

// quoted is a path as one word of ssh_config, which has no way to write a
// double quote.
func quoted(path string) string { return `"` + path + `"` }

func (l *Lab) raise(ctx context.Context, n *rack.Node, user ssh.PublicKey) (*sshserver.Server, error) {
	key, err := hostKey(n)
	if err != nil {
		return nil, err
	}
	server, err := sshserver.Start(ctx, sshserver.Config{
		Version: Version, HostKey: key, Authorized: []ssh.PublicKey{user},
		Parse: sshserver.ParseAny, Handler: l.Nodes.Handler(n.Name),
		FaultsNow: func() sshserver.Faults { return sshserver.Faults{NoGreeting: n.Hung()} },
	})
	if err != nil {
		return nil, fmt.Errorf("simulated node %s: %w", n.Name, err)
	}
	l.servers = append(l.servers, server)
	return server, nil
}

// hostKey is a node's, by the rack's seed and the node's name. It protects
// nothing: the node is not there.
func hostKey(n *rack.Node) (ssh.Signer, error) {
	seed := sha256.Sum256(append(binary.BigEndian.AppendUint64([]byte("rackproof simulated host key\n"), n.Rack().Seed()), n.Name...))
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		return nil, fmt.Errorf("simulated node %s: host key: %w", n.Name, err)
	}
	return key, nil
}

// newUserKey is the key that the lab lets in, and its private half as a file.
func newUserKey() (ssh.PublicKey, []byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the simulated rack: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the simulated rack: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "simulated rack")
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the simulated rack: %w", err)
	}
	return signer.PublicKey(), pem.EncodeToMemory(block), nil
}

// Ports are where the nodes listen, by name.
func (l *Lab) Ports() map[string]int {
	ports := make(map[string]int, len(l.servers))
	for i, n := range l.Nodes.Rack.Nodes() {
		if i < len(l.servers) {
			ports[n.Name] = l.servers[i].Addr().Port
		}
	}
	return ports
}

// Close ends every server and waits for it.
func (l *Lab) Close() error {
	failed := make([]error, len(l.servers))
	var group sync.WaitGroup
	for i, server := range l.servers {
		group.Go(func() { failed[i] = server.Close() })
	}
	group.Wait()
	return errors.Join(failed...)
}
