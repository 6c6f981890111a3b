package checks

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// ncclParams are the parameters of nccl_allreduce.
type ncclParams struct {
	Sizes        []byteSize `json:"sizes"`
	Iterations   int        `json:"iterations"`
	Warmup       int        `json:"warmup"`
	Datatype     string     `json:"datatype"`
	GPUsPerNode  *int       `json:"gpus_per_node"`
	Binary       string     `json:"binary"`
	Launcher     string     `json:"launcher"`
	LauncherArgs []string   `json:"launcher_args"`
	Gang         []string   `json:"gang"`
	Env          []string   `json:"env"`
	Output       string     `json:"output"`
	PerIteration bool       `json:"per_iteration"`
	Directory    string     `json:"directory"`
}

// The launchers.
const (
	ncclProcess = "process"
	ncclMpirun  = "mpirun"
	ncclSrun    = "srun"
	ncclGang    = "gang"
)

const (
	ncclText = "text"
	ncclJSON = "json"
)

// What stands in the argv of a gang for what only the cell knows.
const (
	hostfileMark = "{hostfile}"
	ranksMark    = "{ranks}"
	nodesMark    = "{nodes}"
	perNodeMark  = "{per_node}"
)

// ncclDatatypes are the types that the program knows by name everywhere.
var ncclDatatypes = []string{"float", "half", "bfloat16", "double", "int8", "uint8", "int32", "uint32", "int64", "uint64"}

var ncclSetting = regexp.MustCompile(`^((?:NCCL|UCX|OMPI)_[A-Z0-9_a-z]+)=([^\x00\n]*)$`)

func (p ncclParams) validate() error {
	switch {
	case len(p.Sizes) == 0:
		return errors.New("sizes is empty: give at least one, such as \"8GiB\"")
	case len(p.Sizes) > 64:
		return fmt.Errorf("sizes has %d sizes: give at most 64", len(p.Sizes))
	case p.Iterations < 1 || p.Iterations > 1_000_000:
		return fmt.Errorf("iterations is %d: give 1 to 1000000", p.Iterations)
	case p.Warmup < 0 || p.Warmup > 1_000_000:
		return fmt.Errorf("warmup is %d: give 0 to 1000000", p.Warmup)
	case !slices.Contains(ncclDatatypes, p.Datatype):
		return fmt.Errorf("datatype is %q: choose one of %s", p.Datatype, strings.Join(ncclDatatypes, ", "))
	case p.GPUsPerNode != nil && (*p.GPUsPerNode < 1 || *p.GPUsPerNode > 128):
		return fmt.Errorf("gpus_per_node is %d: give 1 to 128", *p.GPUsPerNode)
	case p.Binary == "" || strings.HasPrefix(p.Binary, "-") || strings.Contains(p.Binary, "="):
		return fmt.Errorf("binary is %q: give the program's name or path", p.Binary)
	case !path.IsAbs(p.Directory) || path.Clean(p.Directory) != p.Directory || p.Directory == "/" || strings.ContainsAny(p.Directory, "%{}"):
		// NCCL gives % a meaning of its own, and find {}.
		return fmt.Errorf("directory is %q: give an absolute path without dot segments, %%, { and }, below the root", p.Directory)
	case p.Output != ncclText && p.Output != ncclJSON:
		return fmt.Errorf("output is %q: choose text or json", p.Output)
	case !slices.Contains([]string{"", ncclProcess, ncclMpirun, ncclSrun, ncclGang}, p.Launcher):
		return fmt.Errorf("launcher is %q: choose one of process, mpirun, srun, gang", p.Launcher)
	case len(p.Gang) > 0 && p.Launcher != ncclGang:
		return errors.New("gang is the command of launcher = \"gang\": write that too, or leave it out")
	case len(p.LauncherArgs) > 0 && (p.Launcher == ncclGang || p.Launcher == ncclProcess):
		return fmt.Errorf("launcher_args go with mpirun and srun, and the launcher is %s", p.Launcher)
	}
	element := ncclElement[p.Datatype]
	for i, size := range p.Sizes {
		switch {
		case size == 0 || uint64(size)%element != 0:
			return fmt.Errorf("size %s is not a multiple of the %d bytes of a %s", evidence.FormatBytes(uint64(size)), element, p.Datatype)
		case i > 0 && size <= p.Sizes[i-1]:
			return fmt.Errorf("sizes are not in rising order: %s follows %s", evidence.FormatBytes(uint64(size)), evidence.FormatBytes(uint64(p.Sizes[i-1])))
		case size > 1<<62:
			return fmt.Errorf("size %s is more than the program can be asked for", evidence.FormatBytes(uint64(size)))
		}
	}
	if err := p.validateEnv(); err != nil {
		return err
	}
	if p.Launcher != ncclGang {
		return nil
	}
	if len(p.Gang) == 0 || p.Gang[0] == "" || strings.Contains(p.Gang[0], "=") {
		return errors.New("gang is empty: give the launcher's command, such as [\"mpiexec\", \"-f\", \"{hostfile}\", \"-n\", \"{ranks}\", \"-ppn\", \"{per_node}\"]")
	}
	for _, mark := range []string{hostfileMark, ranksMark} {
		if !slices.ContainsFunc(p.Gang[1:], func(word string) bool { return strings.Contains(word, mark) }) {
			return fmt.Errorf("gang does not have %s in its arguments, so it would not run on the cell's nodes alone", mark)
		}
	}
	return nil
}

func (p ncclParams) validateEnv() error {
	seen := make(map[string]bool)
	for _, setting := range p.Env {
		match := ncclSetting.FindStringSubmatch(setting)
		if match == nil {
			return fmt.Errorf("env has %q: write NAME=VALUE, with names that begin with NCCL_, UCX_ or OMPI_", setting)
		}
		name := match[1]
		switch {
		case strings.HasPrefix(name, "NCCL_TESTS_"):
			return fmt.Errorf("env sets %s, which changes what nccl-tests measures or how it judges itself: thresholds do that", name)
		case strings.HasPrefix(name, "NCCL_DEBUG"):
			return fmt.Errorf("env sets %s: the check sets NCCL's log itself, to read it", name)
		case seen[name]:
			return fmt.Errorf("env sets %s twice", name)
		}
		seen[name] = true
	}
	return nil
}

// ncclLaunch is how one cell runs: a pure function of the plan.
type ncclLaunch struct {
	params ncclParams
	test   string
	scope  evidence.Scope
	nodes  []string // in fleet order; the first one launches
	gpus   int      // of each node
	// directory is the check's own on each node, with the same name on all:
	// NCCL's settings are the same everywhere.
	directory string
}

// newNcclLaunch says how a cell of nodes would be run, or why it cannot.
func newNcclLaunch(p ncclParams, test string, fleet evidence.Fleet, scope evidence.Scope, nodes []string) (ncclLaunch, error) {
	l := ncclLaunch{params: p, test: test, scope: scope, nodes: fleetOrder(fleet, nodes), gpus: usualGPUs}
	if p.GPUsPerNode != nil {
		l.gpus = *p.GPUsPerNode
	} else if n, err := expectedGPUs(fleet); err != nil {
		return l, fmt.Errorf("%w: write gpus_per_node", err)
	} else if n > 0 {
		l.gpus = n
	}
	if l.params.Launcher == "" {
		l.params.Launcher = ncclMpirun
		if scope == evidence.ScopeNode {
			l.params.Launcher = ncclProcess
		}
	}
	cell := strings.ReplaceAll(evidence.CellID(test, l.nodes, 1), "/", "-")
	l.directory = path.Join(p.Directory, "rackproof-"+strings.TrimSuffix(cell, ".r1"))
	switch {
	case len(nodes) == 0:
		return l, errors.New("there is no node to run on")
	case l.params.Launcher == ncclProcess && len(nodes) > 1:
		return l, fmt.Errorf("launcher \"process\" is one process on one node, and the cell has %d: choose another in scope %q", len(nodes), scope)
	case len(p.LauncherArgs) > 0 && l.params.Launcher == ncclProcess:
		return l, errors.New("launcher_args go with mpirun and srun, and one process on one node has no launcher: write launcher = \"mpirun\"")
	case l.ranks() < 2:
		return l, errors.New("one rank has no bus bandwidth (its factor is 2(n-1)/n = 0): it takes two GPUs")
	}
	return l, nil
}

func (l ncclLaunch) ranks() int    { return len(l.nodes) * l.gpus }
func (l ncclLaunch) first() string { return l.nodes[0] }

// The files of the check begin so, and nothing else is removed.
const (
	ncclFiles    = "rackproof-*"
	ncclLogFiles = "rackproof-nccl.*"
	ncclLogFile  = "rackproof-nccl.%h.%p"
	ncclHostfile = "rackproof-hostfile"
)

func ncclResultFile(run int) string { return fmt.Sprintf("rackproof-result-%d.json", run) }

func (l ncclLaunch) resultPath(run int) string { return path.Join(l.directory, ncclResultFile(run)) }

// ncclRun is one invocation of the program.
type ncclRun struct {
	sizes  []uint64
	factor uint64 // between sizes
}

// runs are the invocations: one where the sizes are a geometric series with a
// whole factor, which the program steps through itself, and otherwise one for
// each size.
func (p ncclParams) runs() []ncclRun {
	sizes := make([]uint64, len(p.Sizes))
	for i, size := range p.Sizes {
		sizes[i] = uint64(size)
	}
	switch len(sizes) {
	case 0:
		return nil
	case 1:
		return []ncclRun{{sizes, 2}}
	}
	factor := sizes[1] / sizes[0]
	series := true
	for i := 1; i < len(sizes); i++ {
		series = series && sizes[i]%sizes[i-1] == 0 && sizes[i]/sizes[i-1] == factor
	}
	if series {
		return []ncclRun{{sizes, factor}}
	}
	runs := make([]ncclRun, len(sizes))
	for i := range sizes {
		runs[i] = ncclRun{sizes[i : i+1], 2}
	}
	return runs
}

// The steps. Runs count from 1.
const (
	ncclHostStep      = "host"
	ncclDirectoryStep = "directory"
	ncclSweepStep     = "sweep"
	ncclHostfileStep  = "hostfile"
	ncclRunPrefix     = "allreduce-"
	ncclResultPrefix  = "result-"
	ncclLogStep       = "log"
	ncclCleanStep     = "clean"
)

func ncclRunStep(run int) string    { return ncclRunPrefix + strconv.Itoa(run) }
func ncclResultStep(run int) string { return ncclResultPrefix + strconv.Itoa(run) }

// argv is what a step runs; nil for a step that is none.
func (l ncclLaunch) argv(step string) []string {
	dir := l.directory
	switch step {
	case ncclHostStep:
		return []string{"uname", "-n"}
	case ncclDirectoryStep:
		return []string{"mkdir", "-p", "-m", "0700", "--", dir}
	case ncclSweepStep:
		// What an attempt left that was cut.
		return []string{"find", dir, "-mindepth", "1", "(", "-type", "f", "-name", ncclFiles, "-delete", ")", "-o", "-print"}
	case ncclHostfileStep:
		return []string{"tee", path.Join(dir, ncclHostfile)}
	case ncclLogStep:
		return []string{"find", dir, "-maxdepth", "1", "-type", "f", "-name", ncclLogFiles, "-exec", "awk", ncclDigest, "{}", "+"}
	case ncclCleanStep:
		return []string{
			"find", dir, "-depth", "(", "(", "-type", "f", "-name", ncclFiles, "-o", "-type", "d", "-empty", ")", "-delete", ")", "-o", "-print",
		}
	}
	for i, run := range l.params.runs() {
		switch step {
		case ncclRunStep(i + 1):
			return l.launch(run, i+1)
		case ncclResultStep(i + 1):
			return []string{
				"find", dir, "-maxdepth", "1", "-type", "f", "-name", ncclResultFile(i + 1),
				"-exec", "sed", "-n", "-E", "-e", ncclFetchGuard, "-e", ncclFetch, "{}", "+",
			}
		}
	}
	return nil
}

// launch is the command that runs the program on all ranks. NCCL's settings
// are in the environment of the launcher, so that every launcher has them, and
// in the argv, so that exit.json says them.
func (l ncclLaunch) launch(run ncclRun, number int) []string {
	settings := append([]string{
		"NCCL_DEBUG=INFO",
		"NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING",
		"NCCL_DEBUG_FILE=" + path.Join(l.directory, ncclLogFile),
	}, l.params.Env...)
	argv := append([]string{"env"}, settings...)
	nodes, ranks, each := strconv.Itoa(len(l.nodes)), strconv.Itoa(l.ranks()), strconv.Itoa(l.gpus)
	ofProcess := 1
	switch l.params.Launcher {
	case ncclProcess:
		ofProcess = l.gpus
	case ncclMpirun:
		hosts := make([]string, len(l.nodes))
		for i, node := range l.nodes {
			hosts[i] = node + ":" + each
		}
		argv = append(argv, "mpirun", "-np", ranks, "--host", strings.Join(hosts, ","), "--map-by", "ppr:"+each+":node", "--tag-output")
		argv = append(argv, l.params.LauncherArgs...)
		for _, setting := range settings {
			name, _, _ := strings.Cut(setting, "=")
			argv = append(argv, "-x", name)
		}
	case ncclSrun:
		argv = append(argv, "srun", "-N", nodes, "-n", ranks, "-w", strings.Join(l.nodes, ","), "--ntasks-per-node="+each, "--distribution=block", "--mpi=pmix", "--label")
		argv = append(argv, l.params.LauncherArgs...)
	case ncclGang:
		fill := strings.NewReplacer(hostfileMark, path.Join(l.directory, ncclHostfile), ranksMark, ranks, nodesMark, nodes, perNodeMark, each)
		for _, word := range l.params.Gang {
			argv = append(argv, fill.Replace(word))
		}
	}
	return append(argv, l.program(run, number, ofProcess)...)
}

// program is nccl-tests with every option said that its releases have another
// default for; -a 3 is the time of the slowest rank.
func (l ncclLaunch) program(run ncclRun, number, gpus int) []string {
	p := l.params
	argv := []string{
		p.Binary,
		"-b", strconv.FormatUint(run.sizes[0], 10), "-e", strconv.FormatUint(run.sizes[len(run.sizes)-1], 10), "-f", strconv.FormatUint(run.factor, 10),
		"-g", strconv.Itoa(gpus), "-n", strconv.Itoa(p.Iterations), "-w", strconv.Itoa(p.Warmup), "-c", "1", "-a", "3", "-d", p.Datatype, "-o", "sum",
	}
	if p.PerIteration {
		argv = append(argv, "-I", "1")
	}
	if p.Output == ncclJSON {
		argv = append(argv, "-J", l.resultPath(number))
	}
	return argv
}

// hostfile is the text of the file for a gang: one node a line.
func (l ncclLaunch) hostfile() []byte { return []byte(strings.Join(l.nodes, "\n") + "\n") }

// needsHostfile reports whether the first node gets that file.
func (l ncclLaunch) needsHostfile() bool { return l.params.Launcher == ncclGang }
