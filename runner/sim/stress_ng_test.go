package sim_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestStressNG(t *testing.T) {
	const log = `stress-ng: info:  [4520] setting to a 90 second (1 min, 30.00 secs) run per stressor
stress-ng: info:  [4520] dispatching hogs: 224 cpu, 2 matrix
stress-ng: metrc: [4520] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: metrc: [4520]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [4520] cpu            12813148     90.00  19861.70     79.93    142368.31         642.53
stress-ng: metrc: [4520] matrix           702633     90.00    177.34      0.71      7807.03        3946.26
stress-ng: info:  [4520] successful run completed in 90.01s (1 min, 30.01 secs)
`
	onHosts(t, func(b bench) {
		b.says(0, "stress-ng, version 0.15.06 (gcc 12.2.0, x86_64 Linux 5.15.0-113-generic)\n", "", "gpu001", "stress-ng", "--version")
		start := time.Now()
		b.says(0, "", log, "gpu001", "stress-ng", "--cpu", "0", "--cpu-method", "all", "--matrix", "2", "--verify", "--metrics-brief", "--timeout", "90s")
		if took := time.Since(start); took != 90*time.Second {
			t.Errorf("took %s", took)
		}
		for _, argv := range [][]string{
			{"stress-ng"}, {"stress-ng", "--timeout", "3s"}, {"stress-ng", "--cpu", "-1"}, {"stress-ng", "--cpu", "1", "--timeout", "x"},
			{"stress-ng", "--cpu", "1", "--cpu", "1"}, {"stress-ng", "--io", "1"}, {"stress-ng", "--cpu"},
		} {
			b.refuses("gpu001", argv...)
		}
	})
}

// ticks reads the first line of /proc/stat: the time of loads, and all time.
func ticks(b bench, node string) (user, all int64) {
	b.t.Helper()
	line, _, _ := strings.Cut(b.run(node, "head", "-n", "1", "/proc/stat").stdout, "\n")
	fields := strings.Fields(line)
	if len(fields) != 11 || fields[0] != "cpu" {
		b.t.Fatalf("/proc/stat begins with %q", line)
	}
	for i, field := range fields[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			user = n
		}
		all += n
	}
	return user, all
}

func TestCPUTime(t *testing.T) {
	onHosts(t, func(b bench) {
		user, before := ticks(b, "gpu001")
		b.run("gpu001", "stress-ng", "--cpu", "112", "--timeout", "10s")
		b.run("gpu001", "sleep", "10")
		after, all := ticks(b, "gpu001")
		// Half of 224 CPUs for ten seconds of twenty.
		if user != 0 || after != 112000 {
			t.Errorf("loads took %d ticks, and %d before", after, user)
		}
		if went := all - before; went < 448000-4 || went > 448000+4 {
			t.Errorf("%d ticks went by on 224 CPUs in 20 s", went)
		}
		if other, _ := ticks(b, "gpu002"); other != 0 {
			t.Errorf("another node took %d ticks", other)
		}
		uptime := b.run("gpu001", "cat", "/proc/uptime").stdout
		if want := fmt.Sprintf("%.2f ", time.Since(b.Nodes()[0].Boot).Seconds()); !strings.HasPrefix(uptime, want) {
			t.Errorf("/proc/uptime is %q, want %q", uptime, want)
		}
	})
}
