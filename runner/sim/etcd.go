package sim

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// etcdVersion is the release of the service and of etcdctl.
const etcdVersion = "3.5.16"

const (
	etcdCommit = 3800 * time.Microsecond // of one write, until a majority has it
	etcdRetry  = 10 * time.Millisecond   // between two tries
	etcdPort   = "2379"
)

// etcdctl knows put, get, endpoint status and endpoint health.
func etcdctl(ctx context.Context, c *Call) sshserver.Exit {
	e := etcdClient{Call: c, timeout: 5 * time.Second, endpoints: []string{"127.0.0.1:" + etcdPort}}
	var words []string
	var prefix, valueOnly bool
	args := c.Argv[1:]
	for ; len(args) > 0; args = args[1:] {
		name, value, _ := strings.Cut(args[0], "=")
		switch {
		case name == "--endpoints" && value != "":
			e.endpoints = strings.Split(value, ",")
		case name == "--command-timeout":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return c.usage("%q", c.Argv)
			}
			e.timeout = d
		case args[0] == "--prefix":
			prefix = true
		case args[0] == "--print-value-only":
			valueOnly = true
		case args[0] == "--":
			words = append(words, args[1:]...)
			args = args[:1]
		case strings.HasPrefix(args[0], "-") && len(args[0]) > 1:
			return c.usage("%q", c.Argv)
		default:
			words = append(words, args[0])
		}
	}
	command := strings.Join(words[:min(2, len(words))], " ")
	switch {
	case len(words) == 3 && words[0] == "put":
		return e.put(ctx, words[1], words[2])
	case len(words) == 2 && words[0] == "get":
		return e.get(ctx, words[1], prefix, valueOnly)
	case len(words) == 2 && command == "endpoint status":
		return e.status(ctx)
	case len(words) == 2 && command == "endpoint health":
		return e.health(ctx)
	case len(words) == 1 && words[0] == "version":
		c.printf("etcdctl version: %s\nAPI version: 3.5\n", etcdVersion)
		return code(0)
	}
	return c.usage("%q", c.Argv)
}

// etcdClient is one call of etcdctl.
type etcdClient struct {
	*Call
	endpoints []string
	timeout   time.Duration
}

// member is the node whose member of the service answers at an endpoint, if
// one does: a name of a node or this one, with a port.
func (e etcdClient) member(endpoint string) (*rack.Node, bool) {
	address := endpoint
	if _, rest, ok := strings.Cut(endpoint, "://"); ok {
		address = rest
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != etcdPort {
		return nil, false
	}
	n := e.Node
	if host != "127.0.0.1" && host != "localhost" {
		var ok bool
		if n, ok = e.Node.Rack().Node(host); !ok {
			return nil, false
		}
	}
	return n, n.Serving() && !n.Hung()
}

// reaches reports whether any endpoint answers.
func (e etcdClient) reaches() bool {
	return slices.ContainsFunc(e.endpoints, func(endpoint string) bool { _, up := e.member(endpoint); return up })
}

// try asks until it is answered, or the command's time is over.
func (e etcdClient) try(ctx context.Context, ask func() error) sshserver.Exit {
	bound := time.Now().Add(e.timeout)
	if exit := pause(ctx, min(etcdCommit, e.timeout)); exit.Signal != "" {
		return exit
	}
	for {
		if e.reaches() && ask() == nil {
			return code(0)
		}
		left := time.Until(bound)
		if left <= 0 {
			break
		}
		if exit := pause(ctx, min(etcdRetry, left)); exit.Signal != "" {
			return exit
		}
	}
	// The client's own log, and what etcdctl makes of it.
	cause := "context deadline exceeded"
	if !e.reaches() {
		host := strings.TrimPrefix(strings.TrimPrefix(e.endpoints[0], "http://"), "https://")
		cause = `latest balancer error: last connection error: connection error: desc = \"transport: Error while dialing: dial tcp ` + host + `: connect: connection refused\"`
	}
	fmt.Fprintf(e.Stderr, `{"level":"warn","ts":"%s","logger":"etcd-client","caller":"v3@v%s/retry_interceptor.go:63","msg":"retrying of unary invoker failed",`+
		`"target":"etcd-endpoints://0xc000150000/%s","attempt":0,"error":"rpc error: code = DeadlineExceeded desc = %s"}`+"\n",
		time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"), etcdVersion, e.endpoints[0], cause)
	fmt.Fprintf(e.Stderr, "Error: context deadline exceeded\n")
	return code(1)
}

func (e etcdClient) put(ctx context.Context, key, value string) sshserver.Exit {
	exit := e.try(ctx, func() error { return e.Node.Rack().Put(key, value) })
	if exit == code(0) {
		e.printf("OK\n")
	}
	return exit
}

func (e etcdClient) get(ctx context.Context, key string, prefix, valueOnly bool) sshserver.Exit {
	var found [][2]string
	exit := e.try(ctx, func() (err error) {
		found, err = e.Node.Rack().Get(func(k string) bool { return k == key || prefix && strings.HasPrefix(k, key) })
		return err
	})
	for _, pair := range found {
		if !valueOnly {
			e.printf("%s\n", pair[0])
		}
		e.printf("%s\n", pair[1])
	}
	return exit
}

// status prints what each member says of itself, without asking the others.
func (e etcdClient) status(context.Context) sshserver.Exit {
	exit := code(0)
	term, revision := e.Node.Rack().Term()
	for _, endpoint := range e.endpoints {
		n, up := e.member(endpoint)
		if !up {
			fmt.Fprintf(e.Stderr, "Failed to get the status of endpoint %s (context deadline exceeded)\n", endpoint)
			exit = code(1)
			continue
		}
		index := revision + 7
		e.printf("%s, %s, %s, 20 kB, %t, false, %d, %d, %d, \n", endpoint, n.MachineID[:16], etcdVersion, e.Node.Rack().Leader() == n.Name, term, index, index)
	}
	return exit
}

// health asks each member for a write that changes nothing.
func (e etcdClient) health(ctx context.Context) sshserver.Exit {
	if exit := pause(ctx, etcdCommit); exit.Signal != "" {
		return exit
	}
	healthy := true
	for _, endpoint := range e.endpoints {
		if _, up := e.member(endpoint); up && e.Node.Rack().Leader() != "" {
			e.printf("%s is healthy: successfully committed proposal: took = %s\n", endpoint, etcdCommit)
			continue
		}
		fmt.Fprintf(e.Stderr, "%s is unhealthy: failed to commit proposal: context deadline exceeded\n", endpoint)
		healthy = false
	}
	if !healthy {
		fmt.Fprintf(e.Stderr, "Error: unhealthy cluster\n")
		return code(1)
	}
	return code(0)
}

// process is one that a node's tools see.
type process struct {
	pid  int
	name string // as in /proc/PID/comm
	line string
}

// processTable is a node's: those that its kernel and system start, and the
// member of the service where it runs.
func processTable(n *rack.Node) []process {
	all := []process{{1, "systemd", "/sbin/init"}, {1204, "sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups"}}
	if n.Serving() {
		all = append(all, process{n.MemberPID(), rack.MemberName, "/usr/bin/etcd --name " + n.Name})
	}
	return all
}

// choose reads what pgrep and pkill share (procps 4.0): -x, -F, and one
// pattern.
func choose(c *Call, args []string) (found []process, exit sshserver.Exit, ok bool) {
	whole := false
	file, pattern := "", ""
	for ; len(args) > 0; args = args[1:] {
		switch {
		case args[0] == "-x":
			whole = true
		case args[0] == "-F" && len(args) > 1:
			file, args = args[1], args[1:]
		case args[0] == "--" && len(args) == 2:
			pattern, args = args[1], args[:1]
		case !strings.HasPrefix(args[0], "-") && len(args) == 1:
			pattern = args[0]
		default:
			return nil, c.usage("%q", c.Argv), false
		}
	}
	if (file == "") == (pattern == "") {
		return nil, c.usage("%q", c.Argv), false
	}
	if file != "" {
		text, err := c.Files.read(file)
		pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || bad != nil {
			fmt.Fprintf(c.Stderr, "%s: pidfile not valid\nTry `%s --help' for more information.\n", c.Argv[0], c.Argv[0])
			return nil, code(1), false
		}
		return slices.DeleteFunc(processTable(c.Node), func(p process) bool { return p.pid != pid }), code(0), true
	}
	form, err := regexp.CompilePOSIX(pattern)
	if err != nil {
		return nil, c.usage("pattern %q", pattern), false
	}
	form.Longest()
	return slices.DeleteFunc(processTable(c.Node), func(p process) bool {
		at := form.FindStringIndex(p.name)
		return at == nil || whole && (at[0] != 0 || at[1] != len(p.name))
	}), code(0), true
}

// pgrep knows -x, -F, -c, -l and -a.
func pgrep(_ context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	how := ""
	for len(args) > 0 && slices.Contains([]string{"-c", "-l", "-a"}, args[0]) {
		how, args = args[0], args[1:]
	}
	found, exit, ok := choose(c, args)
	if !ok {
		return exit
	}
	for _, p := range found {
		switch how {
		case "":
			c.printf("%d\n", p.pid)
		case "-l":
			c.printf("%d %s\n", p.pid, p.name)
		case "-a":
			c.printf("%d %s\n", p.pid, p.line)
		}
	}
	if how == "-c" {
		c.printf("%d\n", len(found))
	}
	if len(found) == 0 {
		return code(1)
	}
	return code(0)
}

// pkill knows -KILL and -TERM, with -x and -F, and has the member of the
// service to end.
func pkill(_ context.Context, c *Call) sshserver.Exit {
	args, signal := c.Argv[1:], "-TERM"
	if len(args) > 0 && slices.Contains([]string{"-KILL", "-9", "-TERM", "-15"}, args[0]) {
		signal, args = args[0], args[1:]
	}
	found, exit, ok := choose(c, args)
	if !ok {
		return exit
	}
	for _, p := range found {
		if p.name != rack.MemberName {
			return c.usage("the end of %s", p.name)
		}
	}
	if len(found) == 0 {
		return code(1)
	}
	if signal == "-KILL" || signal == "-9" {
		c.Node.KillMember()
	} else {
		c.Node.StopMember()
	}
	return code(0)
}

// systemctl knows start, stop, restart and is-active of the service (systemd
// 252), whose unit does not restart it.
func systemctl(_ context.Context, c *Call) sshserver.Exit {
	if len(c.Argv) != 3 || !slices.Contains([]string{"start", "stop", "restart", "is-active"}, c.Argv[1]) {
		return c.usage("%q", c.Argv)
	}
	verb, unit := c.Argv[1], c.Argv[2]
	there := strings.TrimSuffix(unit, ".service") == rack.MemberName && c.Node.Member()
	switch {
	case verb == "is-active":
		state := "inactive"
		switch {
		case there && c.Node.Serving():
			state = "active"
		case there && c.Node.MemberKilled():
			state = "failed"
		}
		c.printf("%s\n", state)
		if state != "active" {
			return code(3)
		}
	case !there && verb == "stop":
		fmt.Fprintf(c.Stderr, "Failed to stop %s: Unit %s not loaded.\n", unitName(unit), unitName(unit))
		return code(5)
	case !there:
		fmt.Fprintf(c.Stderr, "Failed to %s %s: Unit %s not found.\n", verb, unitName(unit), unitName(unit))
		return code(5)
	case verb == "stop":
		c.Node.StopMember()
	case verb == "restart":
		c.Node.StopMember()
		c.Node.StartMember()
	default:
		c.Node.StartMember()
	}
	return code(0)
}

func unitName(unit string) string { return strings.TrimSuffix(unit, ".service") + ".service" }

// serviceTool is service (init-system-helpers), which asks systemctl.
func serviceTool(ctx context.Context, c *Call) sshserver.Exit {
	if len(c.Argv) != 3 || !slices.Contains([]string{"start", "stop", "restart"}, c.Argv[2]) {
		return c.usage("%q", c.Argv)
	}
	return c.exec(ctx, []string{"systemctl", c.Argv[2], c.Argv[1]})
}
