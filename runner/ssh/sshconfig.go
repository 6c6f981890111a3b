package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/kevinburke/ssh_config"
	"golang.org/x/sync/errgroup"
)

// newResolver reads the configuration and asks, where that takes ssh itself,
// for all nodes at once.
func newResolver(ctx context.Context, c config, nodes []string) (*resolver, error) {
	local, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("who runs this: %w", err)
	}
	r := &resolver{config: c, local: local, from: noSettings{}}
	switch {
	case c.SSHConfig == nil:
		if path := filepath.Join(local.HomeDir, ".ssh", "config"); exists(path) {
			r.file = path
		}
	case *c.SSHConfig != "":
		r.file = r.home(*c.SSHConfig)
	}
	if r.file == "" {
		return r, nil
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("ssh_config: %w", err)
	}
	parsed, parseErr := ssh_config.DecodeBytes(text)
	if parseErr == nil && !needsSSH.Match(text) {
		r.from = parsedSettings{parsed}
		return r, nil
	}
	asked := &askedSettings{file: r.file, hosts: make(map[string]*askedHost)}
	if err := asked.prefetch(ctx, nodes); err != nil {
		if parseErr != nil {
			err = fmt.Errorf("%w (and without ssh: %w)", err, parseErr)
		}
		return nil, fmt.Errorf("ssh_config %s: %w", r.file, err)
	}
	r.from = asked
	return r, nil
}

// needsSSH finds what the parser does not do as ssh does: Match, and host
// names that are rewritten.
var needsSSH = regexp.MustCompile(`(?im)^[ \t]*(match|canonicalizehostname)[ \t=]`)

type noSettings struct{}

func (noSettings) all(context.Context, string, string) ([]string, error) { return nil, nil }

// parsedSettings are read by the parser.
type parsedSettings struct{ config *ssh_config.Config }

func (p parsedSettings) all(_ context.Context, host, key string) ([]string, error) {
	return p.config.GetAll(host, key)
}

// askedSettings are what "ssh -G" says, one call a host.
type askedSettings struct {
	file string

	mu    sync.Mutex
	hosts map[string]*askedHost
}

type askedHost struct {
	once   sync.Once
	values map[string][]string
	err    error
}

// askWidth is how many "ssh -G" run at once.
const askWidth = 4

// askClock is how long one may take: a Match exec may do anything.
const askClock = 10 * time.Second

func (a *askedSettings) prefetch(ctx context.Context, hosts []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askWidth)
	for _, host := range hosts {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			_, err := a.ask(ctx, host)
			return err
		})
	}
	return group.Wait()
}

func (a *askedSettings) ask(ctx context.Context, host string) (map[string][]string, error) {
	a.mu.Lock()
	h := a.hosts[host]
	if h == nil {
		h = &askedHost{}
		a.hosts[host] = h
	}
	a.mu.Unlock()
	h.once.Do(func() { h.values, h.err = askSSH(ctx, a.file, host) })
	return h.values, h.err
}

func askSSH(ctx context.Context, file, host string) (map[string][]string, error) {
	ctx, stop := context.WithTimeout(ctx, askClock)
	defer stop()
	cmd := exec.CommandContext(ctx, "ssh", "-G", "-F", file, "--", host)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("it has a Match or a line that only ssh itself understands, and ssh is not installed: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("ssh -G %s: %w: %s", host, err, bytes.TrimSpace(said.Bytes()))
	}
	values := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[key] = append(values[key], value)
	}
	return values, nil
}

func (a *askedSettings) all(ctx context.Context, host, key string) ([]string, error) {
	values, err := a.ask(ctx, host)
	if err != nil {
		return nil, err
	}
	return values[key], nil
}
