package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh_config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRoutes: what ssh_config says, read by the parser and, because of a
// Match, by ssh itself; both must agree.
func TestRoutes(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	text := `
Host gpu*
  HostName %h.cluster.example
  User acceptance
  IdentityFile "~/.ssh/key %r %%"
  IdentityFile /keys/%n.%p
  UserKnownHostsFile ~/.ssh/known "/etc/my hosts/%h"
  GlobalKnownHostsFile none
  ConnectTimeout 3
  ProxyJump ops@bastion:2200,inner
  StrictHostKeyChecking no
Host gpu007
  Port 2222
  HostKeyAlias seven
Host inner
  HostName 10.0.0.1
  ProxyJump bastion
Host bastion
  Port 22
  IdentitiesOnly yes
`
	for name, prefix := range map[string]string{"parser": "", "ssh -G": "Match final all\n  ServerAliveInterval 7\n"} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(map[string]string{"ssh_config": write(t, text+prefix)})
			if err != nil {
				t.Fatal(err)
			}
			c, err := parseConfig(raw)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newResolver(t.Context(), c, []string{"gpu001", "gpu007"})
			if err != nil {
				t.Fatal(err)
			}
			way, err := r.route(t.Context(), "gpu007")
			if err != nil {
				t.Fatal(err)
			}
			var hops []string
			for _, h := range way {
				hops = append(hops, fmt.Sprintf("%s@%s %s", h.user, h.address(), h.lookup))
			}
			// The second jump host is reached through the first, whatever
			// its own entry says.
			want := []string{
				"ops@bastion:2200 bastion:2200",
				me.Username + "@10.0.0.1:22 10.0.0.1:22",
				"acceptance@gpu007.cluster.example:2222 seven:22",
			}
			if !slices.Equal(hops, want) {
				t.Errorf("way is\n %q, want\n %q", hops, want)
			}
			node := way[2]
			if want := []string{me.HomeDir + "/.ssh/key acceptance %", "/keys/gpu007.2222"}; !slices.Equal(node.identities, want) {
				t.Errorf("identities are %q, want %q", node.identities, want)
			}
			if want := []string{me.HomeDir + "/.ssh/known", "/etc/my hosts/gpu007.cluster.example"}; name == "parser" && !slices.Equal(node.knownHosts, want) {
				t.Errorf("known_hosts are %q, want %q", node.knownHosts, want)
			}
			if node.timeout != 3*time.Second || way[0].timeout != 10*time.Second || !way[0].identitiesOnly || node.identitiesOnly {
				t.Errorf("hops are %+v", way)
			}
			if name == "parser" && node.laxHostKeys != "no" {
				t.Errorf("StrictHostKeyChecking is %q", node.laxHostKeys)
			}
		})
	}
}

func TestOverrides(t *testing.T) {
	c := config{User: "u", Port: 7, Jump: "j1,root@[::1]:23", KnownHosts: "/k", Identity: "/id", ConnectTimeout: evidence.Duration(time.Second)}
	file := write(t, "Host *\n User other\n Port 99\n IdentityFile /x\n IdentityAgent /agent\n")
	c.SSHConfig = &file
	r, err := newResolver(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	way, err := r.route(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range way {
		got = append(got, fmt.Sprintf("%s@%s %s %v %v %q", h.user, h.address(), h.lookup, h.identities, h.knownHosts, h.agent))
	}
	want := []string{
		`other@j1:99 j1:99 [/id] [/k] ""`,
		`root@[::1]:23 [::1]:23 [/id] [/k] ""`,
		`u@n1:7 n1:7 [/id] [/k] ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n %q, want\n %q", got, want)
	}
}

func TestConfigRefused(t *testing.T) {
	for name, c := range map[string]struct {
		config map[string]any
		text   string
		words  []string
	}{
		"ProxyCommand":    {nil, "Host n1\n ProxyCommand nc %h %p\n", []string{"n1", "ProxyCommand", "ProxyJump"}},
		"loop":            {nil, "Host *\n ProxyJump a\n", []string{"n1", "loop"}},
		"port":            {nil, "Host *\n Port 70000\n", []string{"Port", "70000"}},
		"token":           {nil, "Host *\n IdentityFile /x/%C\n", []string{"%C", "not supported"}},
		"lone percent":    {nil, "Host *\n HostName x%\n", []string{"lone %"}},
		"timeout":         {nil, "Host *\n ConnectTimeout soon\n", []string{"ConnectTimeout", "soon"}},
		"jump port":       {map[string]any{"jump": "a:x"}, "", []string{"jump host", `"a:x"`}},
		"jump name":       {map[string]any{"jump": "-oProxyCommand=id"}, "", []string{"jump host"}},
		"jump empty":      {map[string]any{"jump": "a,,b"}, "", []string{"jump host"}},
		"become":          {map[string]any{"become": "su"}, "", []string{"become", "sudo"}},
		"argument's port": {map[string]any{"port": 70000}, "", []string{"port", "70000"}},
		"identity":        {map[string]any{"identity": "keys/id"}, "", []string{"identity", "absolute"}},
		"agent":           {map[string]any{"identity": "agent"}, "", []string{"SSH_AUTH_SOCK"}},
		"no file":         {map[string]any{"ssh_config": "/no/such/file"}, "", []string{"/no/such/file"}},
		"type":            {map[string]any{"port": "22"}, "", []string{"port"}},
		"line of no kind": {nil, "Host *\n NoSuchOption yes\nMatch all\n", []string{"ssh_config", "nosuchoption"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := map[string]any{"ssh_config": ""}
			if c.text != "" {
				config["ssh_config"] = write(t, c.text)
			}
			for key, value := range c.config {
				config[key] = value
			}
			x, err := tryOpen(t, config, "n1")
			if err == nil {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
				t.Fatal("was opened")
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
		})
	}
}

func TestSlots(t *testing.T) {
	s := newSlots(3)
	for range 3 {
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if s.acquire(ctx) == nil {
		t.Error("a fourth of three slots was given")
	}
	if !s.refused() {
		t.Error("refused with two in use says that there are none")
	}
	s.release()
	s.release()
	for range 2 {
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan error)
	go func() { got <- s.acquire(t.Context()) }()
	s.release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	s.release()
	if s.refused() {
		t.Error("refused as the only one says that another slot is used")
	}
}

// A task has no form for a gang, so no check may count on one.
func TestKindClaimsNoGang(t *testing.T) {
	if !Kind().Has(evidence.CapExec) || Kind().Has(evidence.CapGang) {
		t.Errorf("it can do %v", Kind().Can)
	}
}
