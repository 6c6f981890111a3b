package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/rackproof/rackproof/evidence"
)

// hostKeys reads each set of known_hosts files once.
type hostKeys struct {
	mu  sync.Mutex
	dbs map[string]*hostKeyDB
}

type hostKeyDB struct {
	once sync.Once
	db   *knownhosts.HostKeyDB // nil where no file is there
	err  error
}

func (k *hostKeys) db(files []string) (*knownhosts.HostKeyDB, error) {
	key := strings.Join(files, "\x00")
	k.mu.Lock()
	entry := k.dbs[key]
	if entry == nil {
		entry = &hostKeyDB{}
		k.dbs[key] = entry
	}
	k.mu.Unlock()
	entry.once.Do(func() {
		var there []string
		for _, file := range files {
			if _, err := os.Stat(file); err == nil {
				there = append(there, file)
			}
		}
		if len(there) > 0 {
			entry.db, entry.err = knownhosts.NewDB(there...)
		}
	})
	return entry.db, entry.err
}

// hostKeyCheck is the check of one handshake.
type hostKeyCheck struct {
	hop     hop
	db      *knownhosts.HostKeyDB
	offered ssh.PublicKey
	problem *evidence.Problem // why the key was not taken
}

// algorithms are the host key algorithms to negotiate: those of the keys
// that known_hosts has for this host, so that a server with several keys
// shows one that can be compared. For an unknown host they are the defaults;
// its key is shown and refused.
func (c *hostKeyCheck) algorithms() []string {
	if c.db != nil {
		known := c.db.HostKeyAlgorithms(c.hop.lookup)
		if len(known) > 0 {
			return slices.DeleteFunc(known, func(algorithm string) bool { return sha1Signatures[algorithm] })
		}
	}
	var plain []string
	for _, algorithm := range ssh.SupportedAlgorithms().HostKeys {
		if !strings.Contains(algorithm, "cert") && !sha1Signatures[algorithm] {
			plain = append(plain, algorithm)
		}
	}
	return plain
}

// sha1Signatures are the algorithms that sign with SHA-1; an RSA key signs
// with SHA-2 as well.
var sha1Signatures = map[string]bool{ssh.KeyAlgoRSA: true, ssh.CertAlgoRSAv01: true}

// check is the ssh.HostKeyCallback. An error of it ends the handshake before
// anything of ours, the user's name included, has been sent.
func (c *hostKeyCheck) check(_ string, remote net.Addr, key ssh.PublicKey) error {
	c.offered = key
	err := error(&xknownhosts.KeyError{})
	if c.db != nil {
		if _, ok := remote.(*net.TCPAddr); !ok {
			remote = &net.TCPAddr{IP: net.IPv4zero}
		}
		err = c.db.HostKeyCallback()(c.hop.lookup, remote, key)
	}
	if err == nil {
		return nil
	}
	c.problem = c.explain(err, key)
	return c.problem
}

func (c *hostKeyCheck) explain(err error, key ssh.PublicKey) *evidence.Problem {
	var keyErr *xknownhosts.KeyError
	var revoked *xknownhosts.RevokedError
	offered := fingerprint(key)
	switch {
	case errors.As(err, &revoked):
		return &evidence.Problem{Class: evidence.ClassHostKeyMismatch, Detail: fmt.Sprintf(
			"%s offered %s, which %s:%d revokes; nothing was sent", c.hop, offered, revoked.Revoked.Filename, revoked.Revoked.Line)}
	case errors.As(err, &keyErr) && len(keyErr.Want) > 0:
		var known []string
		for _, want := range keyErr.Want {
			known = append(known, fmt.Sprintf("%s (%s:%d)", fingerprint(want.Key), want.Filename, want.Line))
		}
		return &evidence.Problem{Class: evidence.ClassHostKeyMismatch, Detail: fmt.Sprintf(
			"%s offered %s, known is %s; nothing was sent; find out whether the machine was replaced before you change known_hosts",
			c.hop, offered, strings.Join(known, ", "))}
	case errors.As(err, &keyErr):
		detail := fmt.Sprintf("%s offered %s, and no key is known for %s in %s; nothing was sent; compare the fingerprint and add the line \"%s %s\"",
			c.hop, offered, c.hop.lookup, c.files(), xknownhosts.Normalize(c.hop.lookup), bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))
		if c.hop.laxHostKeys != "" {
			detail += fmt.Sprintf("; StrictHostKeyChecking %s is not followed: host keys are always checked", c.hop.laxHostKeys)
		}
		return &evidence.Problem{Class: evidence.ClassHostKeyUnknown, Detail: detail}
	}
	return &evidence.Problem{Class: evidence.ClassHostKeyMismatch, Detail: fmt.Sprintf(
		"%s offered %s, which is not valid: %v; nothing was sent", c.hop, offered, err)}
}

// noCommonKey explains a negotiation that found no host key algorithm.
func (c *hostKeyCheck) noCommonKey(err error) *evidence.Problem {
	if c.db == nil || len(c.db.HostKeys(c.hop.lookup)) == 0 {
		return &evidence.Problem{Class: evidence.ClassHostKeyUnknown, Detail: fmt.Sprintf(
			"%s has no host key of a type that can be used, and no key is known for %s in %s; nothing was sent (%v)", c.hop, c.hop.lookup, c.files(), err)}
	}
	var known []string
	for _, key := range c.db.HostKeys(c.hop.lookup) {
		text := fingerprint(key.PublicKey)
		if key.Cert {
			text = "certificates of " + text
		}
		known = append(known, text)
	}
	return &evidence.Problem{Class: evidence.ClassHostKeyMismatch, Detail: fmt.Sprintf(
		"%s has no host key of a type that is known for it; known is %s in %s; nothing was sent (%v)",
		c.hop, strings.Join(known, ", "), c.files(), err)}
}

func (c *hostKeyCheck) files() string { return strings.Join(c.hop.knownHosts, ", ") }

// fingerprint is a key's type and OpenSSH's fingerprint of it.
func fingerprint(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		return fmt.Sprintf("%s %s (certificate by %s)", cert.Key.Type(), ssh.FingerprintSHA256(cert.Key), ssh.FingerprintSHA256(cert.SignatureKey))
	}
	return key.Type() + " " + ssh.FingerprintSHA256(key)
}
