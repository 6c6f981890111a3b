package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// stressor is one of stress-ng's, with the workers that were asked for.
type stressor struct {
	name    string
	workers int
}

// bogoRates are operations a second of one worker that has a CPU to itself.
var bogoRates = map[string]float64{"cpu": 642, "matrix": 3931, "vm": 8930}

// stressNG is stress-ng 0.15.06 (Debian 12) with --cpu, --matrix and --vm, which
// logs on standard error.
func stressNG(ctx context.Context, c *Call) sshserver.Exit {
	var asked []stressor
	limit, brief := 24*time.Hour, false
	for args := c.Argv[1:]; len(args) > 0; args = args[1:] {
		name := strings.TrimPrefix(args[0], "--")
		switch args[0] {
		case "--version":
			c.printf("stress-ng, version 0.15.06 (gcc 12.2.0, x86_64 Linux %s)\n", rack.KernelRelease)
			return code(0)
		case "--verify":
			continue
		case "--metrics-brief":
			brief = true
			continue
		}
		if len(args) < 2 {
			return c.usage("%q", c.Argv)
		}
		switch value := args[1]; args[0] {
		case "--cpu", "--matrix", "--vm":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || slices.ContainsFunc(asked, func(s stressor) bool { return s.name == name }) {
				return c.usage("%q", c.Argv)
			}
			if n == 0 {
				n = rack.CPUs
			}
			asked = append(asked, stressor{name, n})
		case "--cpu-method", "--vm-bytes":
		case "--timeout":
			seconds, ok := span(value)
			if !ok {
				return c.usage("%q", c.Argv)
			}
			limit = seconds
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if len(asked) == 0 || limit < time.Second {
		return c.usage("%q", c.Argv)
	}

	pid := 2000 + int(time.Since(c.Node.Boot).Seconds())%30000
	log := func(kind, format string, args ...any) {
		fmt.Fprintf(c.Stderr, "stress-ng: %s [%d] %s\n", kind, pid, fmt.Sprintf(format, args...))
	}
	workers := 0
	hogs := make([]string, len(asked))
	for i, s := range asked {
		hogs[i] = fmt.Sprintf("%d %s", s.workers, s.name)
		workers += s.workers
	}
	log("info: ", "setting to a %d second%s run per stressor", int(limit.Seconds()), inWords(limit))
	log("info: ", "dispatching hogs: %s", strings.Join(hogs, ", "))
	began := time.Now()
	release := c.Node.LoadCPU(workers)
	exit := pause(ctx, limit)
	release()
	if exit.Signal != "" {
		return exit
	}
	ran := time.Since(began)
	if brief {
		log("metrc:", "%-13s %9s %9s %9s %9s %12s %14s", "stressor", "bogo ops", "real time", "usr time", "sys time", "bogo ops/s", "bogo ops/s")
		log("metrc:", "%-13s %9s %9s %9s %9s %12s %14s", "", "", "(secs) ", "(secs) ", "(secs) ", "(real time)", "(usr+sys time)")
		for _, s := range asked {
			// Workers share the CPUs that there are.
			cpus := float64(s.workers) * min(1, rack.CPUs/float64(workers))
			busy := cpus * ran.Seconds()
			ops := math.Floor(bogoRates[s.name] * c.Node.CPUPace(s.name) * busy)
			user, system := 0.994*busy, 0.004*busy
			log("metrc:", "%-13s %9.0f %9.2f %9.2f %9.2f %12.2f %14.2f", s.name, ops, ran.Seconds(), user, system, ops/ran.Seconds(), ops/(user+system))
		}
	}
	ran += 12 * time.Millisecond // until all workers were reaped
	log("info: ", "successful run completed in %.2fs%s", ran.Seconds(), inWords(ran))
	return code(0)
}

// span reads a time of stress-ng: a number of seconds, or with a unit.
func span(text string) (time.Duration, bool) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	unit := time.Second
	if text != "" && units[text[len(text)-1]] > 0 {
		unit, text = units[text[len(text)-1]], text[:len(text)-1]
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || n > 1e6 {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// inWords is what stress-ng adds to a time of a minute and more.
func inWords(d time.Duration) string {
	if d < time.Minute {
		return ""
	}
	var parts []string
	count := func(n int, unit string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit))
		}
	}
	count(int(d/(24*time.Hour)), "day")
	count(int(d/time.Hour)%24, "hour")
	count(int(d/time.Minute)%60, "min")
	parts = append(parts, fmt.Sprintf("%.2f secs", (d%time.Minute).Seconds()))
	return " (" + strings.Join(parts, ", ") + ")"
}
