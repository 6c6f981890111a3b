package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// config is the executor's block of a runbook. Paths are absolute, or begin
// with "~/".
type config struct {
	User           string            `json:"user"`
	SSHConfig      *string           `json:"ssh_config"` // absent: ~/.ssh/config, if it is there; empty: none
	KnownHosts     string            `json:"known_hosts"`
	Identity       string            `json:"identity"`
	Jump           string            `json:"jump"`
	Port           int               `json:"port"`
	Become         string            `json:"become"`
	Agent          string            `json:"agent"`
	ConnectTimeout evidence.Duration `json:"connect_timeout"`
}

const defaultConnectTimeout = "10s"

func params() []evidence.Param {
	return []evidence.Param{
		{Name: "user", Type: evidence.ParamString, Doc: "The user on the nodes. Without it ssh_config decides, and then the name of the user who runs the runner. A jump host's user is in ssh_config, or in \"user@host\"."},
		{Name: "ssh_config", Type: evidence.ParamPath, Doc: "A file in OpenSSH's format. Without it the user's ~/.ssh/config is read."},
		{Name: "known_hosts", Type: evidence.ParamPath, Doc: "The file with the host keys of nodes and jump hosts. Without it ssh_config decides. A host whose key is not in it is never used."},
		{Name: "identity", Type: evidence.ParamString, Doc: "\"agent\", or the absolute path of a private key file (\"~/\" is the home directory). Without it the agent is asked first, and then the files of ssh_config are tried."},
		{Name: "jump", Type: evidence.ParamString, Doc: "Jump hosts on the way to every node, as in OpenSSH's ProxyJump: \"bastion\" or \"user@a:22,b\"."},
		{Name: "port", Type: evidence.ParamNumber, Whole: true, Unit: "1", Doc: "The nodes' SSH port. Without it ssh_config decides, and then it is 22."},
		{Name: "become", Type: evidence.ParamString, Enum: []string{"sudo"}, Doc: "Runs every command as root through \"sudo -n\"."},
		{Name: "agent", Type: evidence.ParamString, Doc: "The socket of the ssh agent. The command line fills it from SSH_AUTH_SOCK."},
		{Name: "connect_timeout", Type: evidence.ParamDuration, Default: defaultConnectTimeout, Doc: "How long each of connecting, the server's greeting, key exchange with authentication, and opening a session may take."},
		{Name: "shared_machine", Type: evidence.ParamBool, Default: false, Doc: "Lets several nodes be one machine; the evidence says so."},
		{Name: "clock_limit", Type: evidence.ParamDuration, Default: "5s", Doc: "How far a node's clock may be from the runner's."},
		{Name: "parallel", Type: evidence.ParamNumber, Whole: true, Unit: "1", Default: 64, Doc: "How many cells may run at once."},
	}
}

// parseConfig decodes and checks the block.
func parseConfig(raw json.RawMessage) (config, error) {
	var c config
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return c, fmt.Errorf("configuration: %w", err)
		}
	}
	if c.Become != "" && c.Become != "sudo" {
		return c, fmt.Errorf("become is %q: want \"sudo\" or nothing", c.Become)
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("port is %d: want 1 to 65535", c.Port)
	}
	if c.ConnectTimeout == 0 {
		var err error
		if c.ConnectTimeout, err = evidence.ParseDuration(defaultConnectTimeout); err != nil {
			return c, err
		}
	}
	if c.Identity != "" && c.Identity != identityAgent && !filepath.IsAbs(c.Identity) && !strings.HasPrefix(c.Identity, "~/") {
		return c, fmt.Errorf("identity is %q: want \"agent\" or an absolute path", c.Identity)
	}
	if c.Identity == identityAgent && c.Agent == "" {
		return c, fmt.Errorf("identity is \"agent\" and no agent is known: start one and set SSH_AUTH_SOCK, or name a key file")
	}
	return c, nil
}

const identityAgent = "agent"

// hop is one server on the way to a node, or the node itself.
type hop struct {
	name    string // as the runbook or ssh_config calls it
	host    string // a name to resolve, or an address
	port    int
	user    string
	lookup  string // host:port under which known_hosts has it
	timeout time.Duration

	identities     []string // key files, in order
	identitiesOnly bool     // of the agent's keys only those of identities
	agent          string   // socket, or ""
	knownHosts     []string
	laxHostKeys    string // StrictHostKeyChecking, where ssh_config weakens it
}

func (h hop) address() string { return joinHostPort(h.host, h.port) }

func (h hop) String() string {
	if h.name == h.host {
		return h.address()
	}
	return h.name + " (" + h.address() + ")"
}

// route is the way to a node: jump hosts, then the node.
type route []hop

// key names the connection that a route's last hop needs.
func (r route) key() string {
	var key strings.Builder
	for _, h := range r {
		fmt.Fprintf(&key, "%s@%s|%s>", h.user, h.address(), h.lookup)
	}
	return key.String()
}

// settings are what an ssh_config says of a host. Keys are in lower case.
type settings interface {
	// all gives the values of key in order; the first one counts but for
	// IdentityFile.
	all(ctx context.Context, host, key string) ([]string, error)
}

// resolver finds the way to hosts.
type resolver struct {
	config config
	file   string // of settings; "" where there is none
	from   settings
	local  *user.User
}

// maxHops bounds a chain of jump hosts.
const maxHops = 8

// route is the way to node.
func (r *resolver) route(ctx context.Context, node string) (route, error) {
	target, err := r.hop(ctx, node)
	if err != nil {
		return nil, err
	}
	if r.config.User != "" {
		target.user = r.config.User
	}
	if r.config.Port != 0 {
		target.setPort(r.config.Port)
	}
	jump := r.config.Jump
	if jump == "" {
		if jump, err = r.first(ctx, node, "proxyjump"); err != nil {
			return nil, err
		}
	}
	ways, err := r.jumps(ctx, jump, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", node, err)
	}
	return append(ways, target), nil
}

// jumps is the way through a ProxyJump list. Only the first of it has a way
// of its own: the others are reached through the one before.
func (r *resolver) jumps(ctx context.Context, list string, depth int) (route, error) {
	if list == "" || strings.EqualFold(list, "none") {
		return nil, nil
	}
	if depth >= maxHops {
		return nil, fmt.Errorf("ProxyJump %s: more than %d jump hosts in a row, or a loop", list, maxHops)
	}
	var way route
	for i, spec := range strings.Split(list, ",") {
		name, userName, port, err := splitJump(strings.TrimSpace(spec))
		if err != nil {
			return nil, err
		}
		h, err := r.hop(ctx, name)
		if err != nil {
			return nil, err
		}
		if userName != "" {
			h.user = userName
		}
		if port != 0 {
			h.setPort(port)
		}
		if i == 0 {
			own, err := r.first(ctx, name, "proxyjump")
			if err != nil {
				return nil, err
			}
			if way, err = r.jumps(ctx, own, depth+1); err != nil {
				return nil, err
			}
		}
		way = append(way, h)
	}
	return way, nil
}

// splitJump reads [user@]host[:port] or ssh://[user@]host[:port].
func splitJump(spec string) (host, userName string, port int, err error) {
	rest, _ := strings.CutPrefix(spec, "ssh://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		userName, rest = rest[:at], rest[at+1:]
	}
	host = rest
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return "", "", 0, fmt.Errorf("jump host %q: \"[\" is not closed", spec)
		}
		host, rest = rest[1:end], rest[end+1:]
	} else if colon := strings.LastIndexByte(rest, ':'); colon >= 0 {
		host, rest = rest[:colon], rest[colon:]
	} else {
		rest = ""
	}
	if text, ok := strings.CutPrefix(rest, ":"); ok {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return "", "", 0, fmt.Errorf("jump host %q: port %q: want 1 to 65535", spec, text)
		}
	}
	if host == "" || strings.HasPrefix(host, "-") || strings.ContainsAny(host, " \t/") {
		return "", "", 0, fmt.Errorf("jump host %q: want [user@]host[:port]", spec)
	}
	return host, userName, port, nil
}

func (h *hop) setPort(port int) {
	if h.lookup == h.address() {
		h.lookup = joinHostPort(h.host, port)
	}
	h.port = port
}

// hop is what ssh_config says of one host.
func (r *resolver) hop(ctx context.Context, name string) (hop, error) {
	h := hop{
		name: name, host: name, port: 22, user: r.local.Username,
		timeout: r.config.ConnectTimeout.Std(), agent: r.config.Agent,
	}
	fail := func(err error) (hop, error) { return hop{}, fmt.Errorf("%s: ssh_config %s: %w", name, r.file, err) }
	values := make(map[string]string)
	for _, key := range []string{
		"hostname", "port", "user", "hostkeyalias", "proxycommand", "connecttimeout",
		"identitiesonly", "identityagent", "stricthostkeychecking", "userknownhostsfile", "globalknownhostsfile",
	} {
		value, err := r.first(ctx, name, key)
		if err != nil {
			return fail(err)
		}
		values[key] = value
	}
	if command := values["proxycommand"]; command != "" && !strings.EqualFold(command, "none") {
		return fail(fmt.Errorf("ProxyCommand %q is not supported: use ProxyJump or the executor's jump", command))
	}
	if values["hostname"] != "" {
		host, err := expand(values["hostname"], map[byte]string{'h': name})
		if err != nil {
			return fail(err)
		}
		h.host = host
	}
	if text := values["port"]; text != "" {
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			return fail(fmt.Errorf("value of Port is %q: want 1 to 65535", text))
		}
		h.port = port
	}
	if values["user"] != "" {
		h.user = values["user"]
	}
	tokens := map[byte]string{
		'h': h.host, 'n': name, 'p': strconv.Itoa(h.port), 'r': h.user, 'u': r.local.Username,
		'd': r.local.HomeDir, 'i': r.local.Uid,
	}
	h.lookup = h.address()
	if alias := values["hostkeyalias"]; alias != "" {
		alias, err := expand(alias, tokens)
		if err != nil {
			return fail(err)
		}
		h.lookup = joinHostPort(alias, 22)
	}
	if text := values["connecttimeout"]; text != "" && !strings.EqualFold(text, "none") {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 {
			return fail(fmt.Errorf("value of ConnectTimeout is %q: want whole seconds", text))
		}
		h.timeout = time.Duration(seconds) * time.Second
	}
	switch text := strings.ToLower(values["stricthostkeychecking"]); text {
	case "no", "off", "false", "accept-new":
		h.laxHostKeys = text
	}
	h.identitiesOnly = strings.EqualFold(values["identitiesonly"], "yes")
	if err := r.identities(ctx, &h, tokens, values["identityagent"]); err != nil {
		return fail(err)
	}
	if err := r.knownHosts(&h, tokens, values["userknownhostsfile"], values["globalknownhostsfile"]); err != nil {
		return fail(err)
	}
	return h, nil
}

// identities fills the keys of h.
func (r *resolver) identities(ctx context.Context, h *hop, tokens map[byte]string, identityAgent string) error {
	switch identity := r.config.Identity; identity {
	case "agent":
		h.identitiesOnly = false
		return nil
	case "":
	default:
		h.identities, h.agent, h.identitiesOnly = []string{r.home(identity)}, "", false
		return nil
	}
	switch identityAgent {
	case "", "SSH_AUTH_SOCK":
	case "none":
		h.agent = ""
	default:
		path, err := expand(identityAgent, tokens)
		if err != nil {
			return err
		}
		h.agent = r.home(path)
	}
	files, err := r.from.all(ctx, h.name, "identityfile")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		files = []string{"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"}
	}
	for _, file := range files {
		if strings.EqualFold(file, "none") {
			continue
		}
		path, err := expand(unquote(file), tokens)
		if err != nil {
			return err
		}
		h.identities = append(h.identities, r.home(path))
	}
	return nil
}

// knownHosts fills the files of h that are there.
func (r *resolver) knownHosts(h *hop, tokens map[byte]string, userFiles, globalFiles string) error {
	if r.config.KnownHosts != "" {
		h.knownHosts = []string{r.home(r.config.KnownHosts)}
		return nil
	}
	if userFiles == "" {
		userFiles = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
	}
	if globalFiles == "" {
		globalFiles = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
	}
	for _, list := range []string{userFiles, globalFiles} {
		for _, file := range splitQuoted(list) {
			if strings.EqualFold(file, "none") {
				continue
			}
			path, err := expand(file, tokens)
			if err != nil {
				return err
			}
			h.knownHosts = append(h.knownHosts, r.home(path))
		}
	}
	return nil
}

// first is the value of key that counts, or "".
func (r *resolver) first(ctx context.Context, host, key string) (string, error) {
	values, err := r.from.all(ctx, host, key)
	if err != nil || len(values) == 0 {
		return "", err
	}
	if strings.HasSuffix(key, "knownhostsfile") {
		return values[0], nil
	}
	return unquote(values[0]), nil
}

// home puts the home directory in the place of a leading "~".
func (r *resolver) home(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(r.local.HomeDir, path[1:])
	}
	return path
}

// expand puts values in the place of %h, %p and so on; %% is a percent sign.
// A token that has no value here is an error: the file would be another.
func expand(text string, tokens map[byte]string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out.WriteByte(text[i])
			continue
		}
		if i++; i == len(text) {
			return "", fmt.Errorf("%q ends in a lone %%", text)
		}
		value, ok := tokens[text[i]]
		if text[i] == '%' {
			value, ok = "%", true
		}
		if !ok {
			return "", fmt.Errorf("%q: token %%%c is not supported", text, text[i])
		}
		out.WriteString(value)
	}
	return out.String(), nil
}

func unquote(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}

// splitQuoted splits at white space, outside of double quotes.
func splitQuoted(text string) []string {
	var words []string
	var word strings.Builder
	open, quoted := false, false
	for _, c := range []byte(text) {
		switch {
		case c == '"':
			quoted, open = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words
}

func joinHostPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
