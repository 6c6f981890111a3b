package ssh

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentClock is how long an agent may take for one answer.
const agentClock = 5 * time.Second

// keyring gives the keys of a hop. It reads each key file once.
type keyring struct {
	mu    sync.Mutex
	files map[string]*keyFile
}

type keyFile struct {
	once   sync.Once
	signer ssh.Signer
	err    error
}

// offer is the keys for one handshake, and what to say if none is taken.
type offer struct {
	mu    sync.Mutex
	tried []string
	notes []string
	agent *agentLink
}

func (o *offer) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notes = append(o.notes, fmt.Sprintf(format, args...))
}

func (o *offer) try(key ssh.PublicKey, from string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried = append(o.tried, fmt.Sprintf("%s from %s", fingerprint(key), from))
}

// close gives the agent's connection up.
func (o *offer) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.agent != nil {
		o.agent.conn.Close()
		o.agent = nil
	}
}

// String says what was tried and why no more.
func (o *offer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := "no key was there to offer"
	if len(o.tried) > 0 {
		text = "offered " + strings.Join(o.tried, ", ")
	}
	return strings.Join(append([]string{text}, o.notes...), "; ")
}

// signers are the keys for h: the agent's first, then the files'.
func (k *keyring) signers(h hop, o *offer) []ssh.Signer {
	var signers []ssh.Signer
	var only [][]byte
	if h.identitiesOnly {
		only = [][]byte{}
		for _, path := range h.identities {
			if public := readPublic(path); public != nil {
				only = append(only, public.Marshal())
			}
		}
	}
	if h.agent != "" {
		held, err := agentSigners(h.agent, o)
		if err != nil {
			o.note("the agent at %s: %v", h.agent, err)
		}
		for _, signer := range held {
			if only == nil || slices.ContainsFunc(only, func(blob []byte) bool { return string(blob) == string(signer.PublicKey().Marshal()) }) {
				o.try(signer.PublicKey(), "the agent")
				signers = append(signers, signer)
			}
		}
	}
	for _, path := range h.identities {
		signer, err := k.read(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			o.note("%s: %v", path, err)
			continue
		}
		o.try(signer.PublicKey(), path)
		signers = append(signers, signer)
		if cert := readCertificate(path, signer); cert != nil {
			o.try(cert.PublicKey(), path+"-cert.pub")
			signers = append(signers, cert)
		}
	}
	return signers
}

func (k *keyring) read(path string) (ssh.Signer, error) {
	k.mu.Lock()
	f := k.files[path]
	if f == nil {
		f = &keyFile{}
		k.files[path] = f
	}
	k.mu.Unlock()
	f.once.Do(func() {
		text, err := os.ReadFile(path)
		if err != nil {
			f.err = err
			return
		}
		f.signer, f.err = ssh.ParsePrivateKey(text)
		var locked *ssh.PassphraseMissingError
		if errors.As(f.err, &locked) {
			f.err = errors.New("the key has a passphrase: add it to an agent")
		}
	})
	return f.signer, f.err
}

// readPublic is the public key beside a private key file, or nil.
func readPublic(path string) ssh.PublicKey {
	text, err := os.ReadFile(path + ".pub")
	if err != nil {
		return nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	return key
}

// readCertificate is the user certificate beside a private key file, or nil.
func readCertificate(path string, signer ssh.Signer) ssh.Signer {
	cert, ok := readPublic(path + "-cert").(*ssh.Certificate)
	if !ok {
		return nil
	}
	with, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil
	}
	return with
}

// agentLink is a connection to an agent of which every answer has a clock.
type agentLink struct {
	conn net.Conn
}

func (l *agentLink) Read(p []byte) (int, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(agentClock)); err != nil {
		return 0, err
	}
	return l.conn.Read(p)
}

func (l *agentLink) Write(p []byte) (int, error) {
	if err := l.conn.SetWriteDeadline(time.Now().Add(agentClock)); err != nil {
		return 0, err
	}
	return l.conn.Write(p)
}

func agentSigners(socket string, o *offer) ([]ssh.Signer, error) {
	conn, err := net.DialTimeout("unix", socket, agentClock)
	if err != nil {
		return nil, err
	}
	link := &agentLink{conn}
	o.mu.Lock()
	o.agent = link
	o.mu.Unlock()
	return agent.NewClient(link).Signers()
}
