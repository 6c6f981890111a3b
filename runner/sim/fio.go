package sim

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// fioRelease is the fio of Debian 12.
const fioRelease = "fio-3.33"

// fioOption is one option as it was given.
type fioOption struct{ name, value string }

// fioJob is what one call asks: one group of like jobs.
type fioJob struct {
	global, own []fioOption // before --name and from it on

	name, directory, format string
	write, random           bool
	engine                  string
	block, size             int64
	depth, jobs             int
	runtime, ramp           time.Duration // runtime zero: until size is done
	fsync, unlink, layOut   bool
}

// fioSettled are options that change nothing here, with the values they may have.
var fioSettled = map[string][]string{
	"randrepeat": {"0", "1"}, "group_reporting": {"", "1"}, "direct": {"0", "1"}, "time_based": {"", "1"},
	"output-format": {"json"}, "eta": {"never"},
}

// fio is fio 3.33 with one group of jobs and its report in JSON.
func fio(ctx context.Context, c *Call) sshserver.Exit {
	if slices.Equal(c.Argv[1:], []string{"--version"}) {
		c.printf("%s\n", fioRelease)
		return code(0)
	}
	j, err := readFioJob(c.Argv[1:])
	if err != nil {
		return c.usage("%v", err)
	}
	if j.directory != "" && !c.Files.isDir(j.directory) {
		fmt.Fprintf(c.Stderr, "fio: %s is not a directory\nfio: failed parsing directory=%s\n", j.directory, j.directory)
		return code(1)
	}
	local := !c.Files.isShared(path.Clean(j.directory))
	if exit := j.prepare(ctx, c, local); exit != code(0) {
		return exit
	}
	run := fioRun{elapsed: time.Second}
	if !j.layOut {
		s := c.Node.Storage(rack.Client{Local: local, Write: j.write, Block: j.block, InFlight: j.inFlight(), Sync: j.fsync})
		exit := pause(ctx, j.ramp+j.runtime)
		run = j.measured(s.End())
		if exit.Signal != "" {
			return exit
		}
	}
	if j.unlink {
		for _, name := range j.files() {
			_ = c.Files.remove(name) // another may have been quicker
		}
	}
	c.printf("%s", j.report(run, time.Now()))
	return code(0)
}

// prepare lays out the files that the jobs read, or write over.
func (j fioJob) prepare(ctx context.Context, c *Call, local bool) sshserver.Exit {
	var added int64
	for _, name := range j.files() {
		n, err := c.Files.layOut(name, j.size)
		if err != nil {
			fmt.Fprintf(c.Stderr, "fio: pid=0, err=2/file:filesetup.c:174, func=open, error=%s\n", err)
			return code(1)
		}
		added += n
	}
	if added == 0 || j.write && !j.layOut {
		return code(0) // a job that writes makes its file as it goes
	}
	s := c.Node.Storage(rack.Client{Local: local, Write: true, Block: 1 << 20, InFlight: 4 * j.jobs})
	rate := s.End().Rate * (1 << 20)
	return pause(ctx, time.Duration(float64(added)/rate*float64(time.Second)))
}

// files are the jobs' files, one each.
func (j fioJob) files() []string {
	names := make([]string, j.jobs)
	for i := range names {
		name := strings.NewReplacer("$jobname", j.name, "$jobnum", strconv.Itoa(i), "$filenum", "0").Replace(j.format)
		names[i] = path.Join("/", j.directory, name)
	}
	return names
}

func (j fioJob) async() bool { return j.engine == "libaio" || j.engine == "io_uring" }

// inFlight is how many requests the jobs have open at once.
func (j fioJob) inFlight() int {
	if j.async() {
		return j.depth * j.jobs
	}
	return j.jobs
}

// readFioJob reads options of the form --name=value.
func readFioJob(args []string) (fioJob, error) {
	j := fioJob{format: "$jobname.$jobnum.$filenum", engine: "psync", block: 4096, depth: 1, jobs: 1}
	report, timed := false, false
	for _, arg := range args {
		text, ok := strings.CutPrefix(arg, "--")
		if !ok {
			return j, fmt.Errorf("%q", arg)
		}
		name, value, given := strings.Cut(text, "=")
		if err := j.set(name, value); err != nil {
			return j, fmt.Errorf("%q", arg)
		}
		report = report || name == "output-format"
		timed = timed || name == "time_based"
		switch {
		case name == "output-format" || name == "eta" || !given:
		case j.name == "":
			j.global = append(j.global, fioOption{name, value})
		default:
			j.own = append(j.own, fioOption{name, value})
		}
	}
	switch {
	case !report:
		return j, errors.New("a report other than --output-format=json")
	case j.name == "":
		return j, errors.New("a job without a name")
	case j.size < j.block:
		return j, errors.New("a size below that of one block")
	case !j.layOut && (!timed || j.runtime == 0):
		return j, errors.New("a run that is not time_based")
	case j.depth > 1 && !j.async():
		return j, fmt.Errorf("iodepth %d with engine %s", j.depth, j.engine)
	}
	return j, nil
}

var errFioValue = errors.New("not simulated")

// set takes one option.
func (j *fioJob) set(name, value string) error {
	var err error
	count := func(into *int) { *into, err = strconv.Atoi(value) }
	bytes := func(into *int64) { *into, err = fioBytes(value) }
	flag := func(into *bool) { *into = value != "0" }
	switch name {
	case "name":
		if j.name != "" || value == "" {
			return errFioValue
		}
		j.name = value
	case "directory":
		j.directory = value
	case "filename_format":
		j.format = value
	case "rw":
		kinds := map[string][2]bool{"read": {false, false}, "write": {true, false}, "randread": {false, true}, "randwrite": {true, true}}
		kind, ok := kinds[value]
		if !ok {
			return errFioValue
		}
		j.write, j.random = kind[0], kind[1]
	case "ioengine":
		if !slices.Contains([]string{"libaio", "io_uring", "sync", "psync"}, value) {
			return errFioValue
		}
		j.engine = value
	case "bs":
		bytes(&j.block)
	case "size":
		bytes(&j.size)
	case "iodepth":
		count(&j.depth)
	case "numjobs":
		count(&j.jobs)
	case "runtime":
		j.runtime, err = fioTime(value)
	case "ramp_time":
		j.ramp, err = fioTime(value)
	case "fsync":
		if value != "0" && value != "1" {
			return errFioValue
		}
		flag(&j.fsync)
	case "unlink":
		flag(&j.unlink)
	case "create_only":
		flag(&j.layOut)
	default:
		allowed, ok := fioSettled[name]
		if !ok || !slices.Contains(allowed, value) {
			return errFioValue
		}
	}
	if err != nil || j.block < 1 || j.depth < 1 || j.depth > 65536 || j.jobs < 1 || j.jobs > 4096 {
		return errFioValue
	}
	return nil
}

// fioBytes reads a size: a number, with k, m, g or t for powers of 1024.
func fioBytes(text string) (int64, error) {
	shift := 0
	if text != "" {
		if at := strings.IndexByte("kmgt", text[len(text)-1]|0x20); at >= 0 {
			shift, text = 10*(at+1), text[:len(text)-1]
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, errFioValue
	}
	return n << shift, nil
}

// fioTime reads a time: seconds, or a number with us, ms, s, m or h.
func fioTime(text string) (time.Duration, error) {
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errFioValue
	}
	return d, nil
}
