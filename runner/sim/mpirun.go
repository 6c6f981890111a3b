package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// mpirun of Open MPI 4.1.4, and mpiexec of MPICH's Hydra 4.

// cores are the slots that a node has where nobody says how many.
const cores = 112

// mpiCall is the command line of mpirun, read.
type mpiCall struct {
	hosts          []host
	ranks          int // 0: one for each slot
	each           int // of each node, or 0
	exports        []string
	tagged, stamps bool
	xml            bool
	merged         bool
	limit          int // s, or 0
	program        []string
}

// Exit statuses of mpirun.
const (
	mpiFailed   = 1
	mpiTimedOut = 110
	mpiNoBinary = 132 // as Open MPI 4.1.4 was seen to end
)

// notice is a message of mpirun's, between two rules.
func notice(text string) string {
	rule := strings.Repeat("-", 74) + "\n"
	return rule + text + "\n" + rule
}

func mpirun(ctx context.Context, c *Call) sshserver.Exit {
	m, exit, ok := parseMPI(c)
	if !ok {
		return exit
	}
	if m.ranks == 0 {
		for _, h := range m.hosts {
			slots := h.slots
			if m.each > 0 {
				slots = m.each
			}
			m.ranks += slots
		}
	}
	nodes, fits := spread(m.hosts, m.ranks, m.each)
	if !fits {
		fmt.Fprint(c.Stderr, notice(fmt.Sprintf(mpiNoSlots, m.ranks, m.program[0])))
		return code(mpiFailed)
	}
	if _, found := c.program(m.program[0]); !found {
		fmt.Fprint(c.Stderr, notice(fmt.Sprintf("mpirun was unable to launch the specified application as it could not access\nor execute an executable:\n\n"+
			"Executable: %s\nNode: %s\n\nwhile attempting to start process rank 0.", m.program[0], shortHost(nodes[0]))))
		fmt.Fprintf(c.Stderr, "%d total processes failed to start\n", m.ranks)
		return code(mpiNoBinary)
	}
	limited, stop := ctx, context.CancelFunc(func() {})
	if m.limit > 0 {
		limited, stop = context.WithTimeout(ctx, time.Duration(m.limit)*time.Second)
	}
	defer stop()
	if m.xml {
		c.printf("<mpirun>\n")
	}
	end := m.launch(c, nodes).run(limited)
	if m.xml {
		c.printf("</mpirun>\n")
	}
	return m.conclude(ctx, limited, c, nodes, end)
}

const mpiNoSlots = `There are not enough slots available in the system to satisfy the %d
slots that were requested by the application:

  %s

Either request fewer slots for your application, or make more slots
available for use.

A "slot" is the Open MPI term for an allocatable unit where we can
launch a process.  The number of slots available are defined by the
environment in which Open MPI processes are run:

  1. Hostfile, via "slots=N" clauses (N defaults to number of
     processor cores if not provided)
  2. The --host command line parameter, via a ":N" suffix on the
     hostname (N defaults to 1 if not provided)
  3. Resource manager (e.g., SLURM, PBS/Torque, LSF, etc.)
  4. If none of a hostfile, the --host command line parameter, or an
     RM is present, Open MPI defaults to the number of processor cores

In all the above cases, if you want Open MPI to default to the number
of hardware threads instead of the number of processor cores, use the
--use-hwthread-cpus option.

Alternatively, you can use the --oversubscribe option to ignore the
number of available slots when deciding the number of processes to
launch.`

const mpiNoDaemon = `ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH
  settings, or configure OMPI with --enable-orterun-prefix-by-default

* lack of authority to execute on one or more specified nodes.
  Please verify your allocation and authorities.

* the inability to write startup files into /tmp (--tmpdir/orte_tmpdir_base).
  Please check with your sys admin to determine the correct location to use.

*  compilation of the orted with dynamic libraries when static are required
  (e.g., on Cray). Please check your configure cmd line and consider using
  one of the contrib/platform definitions for your system type.

* an inability to create a connection back to mpirun due to a
  lack of common network interfaces and/or no route found between
  them. Please check network connectivity (including firewalls
  and network routing requirements).`

// parseMPI reads the command line; where mpirun ends there, exit is how.
func parseMPI(c *Call) (m mpiCall, exit sshserver.Exit, ok bool) {
	args := c.Argv[1:]
	next := func() string {
		if len(args) == 0 {
			return ""
		}
		value := args[0]
		args = args[1:]
		return value
	}
	refuse := func(err error) (mpiCall, sshserver.Exit, bool) {
		if name, unknown := err.(unknownHost); unknown {
			fmt.Fprintf(c.Stderr, "ssh: Could not resolve hostname %s: Name or service not known\n%s", string(name), notice(mpiNoDaemon))
			return m, code(mpiFailed), false
		}
		return m, c.usage("%q: %v", c.Argv, err), false
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		// One dash is as good as two.
		option := "-" + strings.TrimLeft(args[0], "-")
		args = args[1:]
		var err error
		switch option {
		case "-np", "-n", "-c":
			m.ranks, err = strconv.Atoi(next())
		case "-N", "-npernode":
			m.each, err = strconv.Atoi(next())
		case "-H", "-host":
			for name := range strings.SplitSeq(next(), ",") {
				name, count, counted := strings.Cut(name, ":")
				slots := 1
				if counted && err == nil {
					slots, err = strconv.Atoi(count)
				}
				if err == nil {
					m.hosts, err = c.addHost(m.hosts, name, slots)
				}
			}
		case "-hostfile", "-machinefile", "-default-hostfile":
			m.hosts, err = c.hostfile(next(), cores)
		case "-map-by":
			m.each, err = perNodeOf(next(), m.each)
		case "-x":
			name, value, given := strings.Cut(next(), "=")
			if !given {
				value, given = environment(c.Env, name)
			}
			if given {
				m.exports = append(m.exports, name+"="+value)
			}
		case "-mca", "-omca", "-gmca":
			next()
			next()
		case "-bind-to", "-rank-by", "-wdir", "-wd", "-prefix", "-path":
			next()
		case "-timeout":
			m.limit, err = strconv.Atoi(next())
		case "-tag-output":
			m.tagged = true
		case "-timestamp-output":
			m.stamps = true
		case "-xml":
			m.xml = true
		case "-merge-stderr-to-stdout":
			m.merged = true
		case "-allow-run-as-root", "-oversubscribe", "-nooversubscribe", "-report-bindings", "-display-map", "-q", "-quiet", "-v":
		default:
			return refuse(fmt.Errorf("option %s", option))
		}
		if err != nil {
			return refuse(err)
		}
	}
	if m.hosts == nil {
		m.hosts = []host{{c.Node, cores}}
	}
	if m.program = args; len(args) == 0 {
		fmt.Fprint(c.Stderr, notice("mpirun could not find anything to do.\n\n"+
			"It is possible that you forgot to specify how many processes to run\nvia the \"-np\" argument."))
		return m, code(mpiFailed), false
	}
	return m, code(0), true
}

// perNodeOf is how many ranks of each node a mapping asks for; before is what
// was asked so far.
func perNodeOf(mapping string, before int) (int, error) {
	switch fields := strings.Split(mapping, ":"); {
	case len(fields) >= 3 && fields[0] == "ppr" && fields[2] == "node":
		return strconv.Atoi(fields[1])
	case slices.Contains([]string{"slot", "core", "numa", "socket"}, fields[0]):
		return before, nil
	}
	return 0, fmt.Errorf("--map-by %s", mapping)
}

// hostfile reads the hosts of a file on the node: a name a line, with slots=N
// (Open MPI) or :N (Hydra) behind it.
func (c *Call) hostfile(name string, slots int) ([]host, error) {
	data, err := c.Files.read(name)
	if err != nil {
		return nil, fmt.Errorf("hostfile %s: %w", name, err)
	}
	var hosts []host
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		count := slots
		name, number, counted := strings.Cut(fields[0], ":")
		for _, field := range fields[1:] {
			if value, ok := strings.CutPrefix(field, "slots="); ok {
				number, counted = value, true
			}
		}
		if counted {
			if count, err = strconv.Atoi(number); err != nil {
				return nil, fmt.Errorf("hostfile %s: %w", line, err)
			}
		}
		if hosts, err = c.addHost(hosts, name, count); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// launch is the program under mpirun's handling of its output (orte/mca/iof of
// 4.1): each piece that is read gets a tag, and each line in it.
func (m mpiCall) launch(c *Call, nodes []*rack.Node) launch {
	var mu sync.Mutex
	stream := func(to io.Writer, name string) func(int) io.Writer {
		return func(rank int) io.Writer {
			return ranked{&mu, to, func(piece string) string { return m.dress(piece, rank, name) }}
		}
	}
	errors := c.Stderr
	if m.merged {
		errors = c.Stdout
	}
	env := func(rank int) []string {
		return append([]string{
			fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", rank), fmt.Sprintf("OMPI_COMM_WORLD_SIZE=%d", len(nodes)),
		}, m.exports...)
	}
	return launch{
		c: c, argv: m.program, nodes: nodes, local: env, away: env,
		stdout: stream(c.Stdout, "stdout"), stderr: stream(errors, "stderr"),
	}
}

func (m mpiCall) dress(piece string, rank int, stream string) string {
	before, after := "", ""
	switch {
	case m.xml:
		before, after = fmt.Sprintf("<%s rank=\"%d\">", stream, rank), "</"+stream+">"
	case m.tagged || m.stamps:
		if m.stamps {
			before = time.Now().UTC().Format(time.ANSIC)
		}
		if m.tagged {
			before += fmt.Sprintf("[1,%d]", rank)
		}
		before += "<" + stream + ">:"
	default:
		return piece
	}
	var out strings.Builder
	for line := range strings.Lines(piece) {
		text, whole := strings.CutSuffix(line, "\n")
		if m.xml {
			text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#013;").Replace(text)
		}
		out.WriteString(before + text)
		if whole && m.xml {
			out.WriteString("&#010;")
		}
		out.WriteString(after)
		if whole {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// conclude says what became of the ranks.
func (m mpiCall) conclude(ctx, limited context.Context, c *Call, nodes []*rack.Node, end ended) sshserver.Exit {
	if limited.Err() != nil && ctx.Err() == nil {
		unit := "seconds"
		if m.limit == 1 {
			unit = "second"
		}
		fmt.Fprint(c.Stderr, notice(fmt.Sprintf("The user-provided time limit for job execution has been reached:\n\n  Timeout: %d %s\n\n"+
			"The job will now be aborted.  Please check your code and/or\nadjust/remove the job execution time limit (as specified by --timeout\n"+
			"command line option or MPIEXEC_TIMEOUT environment variable).", m.limit, unit)))
		return code(mpiTimedOut)
	}
	if ctx.Err() != nil || end.exit == (sshserver.Exit{}) {
		return end.exit
	}
	if signal, ok := signals[end.exit.Signal]; ok {
		fmt.Fprint(c.Stderr, notice(fmt.Sprintf("mpirun noticed that process rank %d with PID 0 on node %s exited on signal %d (%s).",
			end.rank, shortHost(nodes[end.rank]), signal.number, signal.text)))
		return code(128 + signal.number)
	}
	fmt.Fprint(c.Stderr, notice("Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted."))
	fmt.Fprint(c.Stderr, notice(fmt.Sprintf("mpirun detected that one or more processes exited with non-zero status, thus causing\n"+
		"the job to be terminated. The first process to do so was:\n\n  Process name: [[%d,1],%d]\n  Exit code:    %d",
		pid(c.Node, "orterun")%65536, end.rank, end.exit.Code)))
	return end.exit
}

// signals are the numbers and texts of signals.
var signals = map[string]struct {
	number int
	text   string
}{"ABRT": {6, "Aborted"}, "KILL": {9, "Killed"}, "SEGV": {11, "Segmentation fault"}, "TERM": {15, "Terminated"}}

// mpiexec is Hydra: -f FILE or -hosts LIST, -n RANKS, -ppn EACH, -l, -genv and
// -env.
func mpiexec(ctx context.Context, c *Call) sshserver.Exit {
	var hosts []host
	var exports []string
	ranks, each, labels := 1, 0, false
	args := c.Argv[1:]
	next := func() string {
		if len(args) == 0 {
			return ""
		}
		value := args[0]
		args = args[1:]
		return value
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := next()
		var err error
		switch option {
		case "-n", "-np":
			ranks, err = strconv.Atoi(next())
		case "-ppn", "-perhost":
			each, err = strconv.Atoi(next())
		case "-f", "-hostfile", "-machinefile":
			hosts, err = c.hostfile(next(), 1)
		case "-hosts", "-host":
			for name := range strings.SplitSeq(next(), ",") {
				if err == nil {
					hosts, err = c.addHost(hosts, name, 1)
				}
			}
		case "-l", "-prepend-rank":
			labels = true
		case "-genv", "-env":
			name := next()
			exports = append(exports, name+"="+next())
		case "-genvall", "-envall", "-v":
		case "-launcher", "-bootstrap", "-iface", "-bind-to", "-map-by":
			next()
		default:
			return c.usage("%q", c.Argv)
		}
		if err != nil {
			return c.usage("%q: %v", c.Argv, err)
		}
	}
	if len(args) == 0 {
		return c.usage("%q: no program", c.Argv)
	}
	if hosts == nil {
		hosts = []host{{c.Node, ranks}}
	}
	// Hydra deals out ranks, each to a host in turn, as often as it must.
	for i := range hosts {
		if each > 0 {
			hosts[i].slots = each
		}
	}
	var nodes []*rack.Node
	for fits := false; !fits; {
		var round []*rack.Node
		if round, fits = spread(hosts, ranks-len(nodes), 0); len(round) == 0 {
			return c.usage("%q: %d ranks", c.Argv, ranks)
		}
		nodes = append(nodes, round...)
	}
	if _, found := c.program(args[0]); !found {
		for range ranks {
			fmt.Fprintf(c.Stderr, "[proxy:0:0@%s] HYDU_create_process (lib/utils/launch.c:73): execvp error on file %s (No such file or directory)\n", shortHost(nodes[0]), args[0])
		}
		return code(255)
	}
	var mu sync.Mutex
	stream := func(to io.Writer) func(int) io.Writer {
		return func(rank int) io.Writer {
			return ranked{&mu, to, func(piece string) string {
				if !labels {
					return piece
				}
				return prefixLines(piece, fmt.Sprintf("[%d] ", rank))
			}}
		}
	}
	// All of the launcher's environment goes to every rank.
	env := func(rank int) []string { return append([]string{fmt.Sprintf("PMI_RANK=%d", rank)}, exports...) }
	end := launch{
		c: c, argv: args, nodes: nodes, local: env,
		away:   func(rank int) []string { return slices.Concat(c.Env, env(rank)) },
		stdout: stream(c.Stdout), stderr: stream(c.Stderr),
	}.run(ctx)
	if ctx.Err() != nil || end.exit == (sshserver.Exit{}) {
		return end.exit
	}
	status := end.exit.Code
	if signal, ok := signals[end.exit.Signal]; ok {
		status = 128 + signal.number
	}
	rule := strings.Repeat("=", 83)
	c.printf("\n%s\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID %d RUNNING AT %s\n=   EXIT CODE: %d\n"+
		"=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n%s\n",
		rule, pid(nodes[end.rank], strings.Join(args, " ")), shortHost(nodes[end.rank]), status, rule)
	return code(status)
}

func prefixLines(text, prefix string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(prefix + line)
	}
	return out.String()
}
