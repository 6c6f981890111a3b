package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// gpu_burn of wilicc/gpu-burn at 3ead140 (2026). It forks a process for each
// GPU, prints a line of progress whenever some of them report, and exits with
// 0 whatever they found.

// Figures of gpu_burn-drv.cpp.
const (
	burnKernel     = "compare.fatbin"
	burnShare      = 90               // % of the free memory
	burnOperations = 1100048498688    // of one product
	burnProduct    = 4 * 8192 * 8192  // bytes of its result, in single precision
	burnGrace      = 30 * time.Second // for the processes, after TERM
	burnSummary    = 10               // % between two summaries
	burnTogether   = time.Second / 20 // reports so close are read at once
	burnInit       = 3 * time.Second  // CUDA and the buffers
	burnSamples    = 5 * time.Second  // of the temperatures
	burnMegabyte   = 1 << 20
)

// What CUDA has left of a GPU's memory after it has made a context, in MiB.
const burnAvailable = rack.CUDAMemory - 511

// Exit statuses of gpu_burn: values of errno, for want of others.
const (
	exitInvalid   = 22  // EINVAL: a bad command line
	exitNoDevice  = 19  // ENODEV: no GPU
	exitNoClients = 123 // ENOMEDIUM: every process has died
)

// burnCall is the command line of gpu_burn, read.
type burnCall struct {
	precision rack.Precision
	tensor    bool
	only      int    // a GPU's index, or -1
	kernel    string // the file
	bytes     int64  // to use; negative: % of what is free
	seconds   int
	timed     bool // seconds were given
	grace     time.Duration
}

// burning is the process that burns one GPU, as the parent sees it.
type burning struct {
	device
	next    time.Time // its next report
	last    time.Time
	ops     int64 // products of a report
	done    int64 // -1: it died
	rate    float64
	errors  int64 // since the last summary
	faulty  bool
	celsius int    // 0: not known so far
	failure string // why it dies before it has begun
	release func()
}

func gpuBurn(ctx context.Context, c *Call) sshserver.Exit {
	b, exit, ok := parseBurn(c)
	if !ok {
		return exit
	}
	gpus := devices(c.Node)
	if b.only >= 0 {
		gpus = slices.DeleteFunc(gpus, func(d device) bool { return d.index != b.only })
	}
	(smiCall{list: true}).printList(c, devices(c.Node))
	if len(gpus) == 0 {
		fmt.Fprintf(c.Stderr, "cuInit returned 100 (no CUDA-capable device is detected)\n"+
			"Couldn't init CUDA: Error (gpu_burn-drv.cpp:317): no CUDA-capable device is detected\nNo CUDA devices\n")
		c.printf("%s", b.heading())
		return code(exitNoDevice)
	}
	clients := make([]*burning, len(gpus))
	for i, d := range gpus {
		clients[i] = &burning{device: d, release: func() {}}
		fmt.Fprint(c.Stderr, "cuInit returned 0 (no error)\n")
	}
	defer func() {
		for _, g := range clients {
			g.release()
		}
	}()
	start := time.Now()
	for _, g := range clients {
		g.next, g.last, g.ops = start.Add(burnInit), start, b.products()
		switch {
		case g.lost:
			g.failure = "Error (gpu_burn-drv.cpp:116): unknown error"
		case b.use() > burnAvailable*burnMegabyte:
			g.failure = "Error in C alloc (gpu_burn-drv.cpp:200): out of memory"
		}
		if g.failure != "" {
			g.next = start.Add(time.Second)
			continue
		}
		g.release = g.node.LoadGPU(g.slot, b.precision.Load())
	}
	if exit := b.listen(ctx, c, clients, start); exit != (sshserver.Exit{}) {
		return exit
	}
	return b.finish(ctx, c, clients)
}

// parseBurn reads the command line as gpu_burn does, which looks for an option
// anywhere in a word.
func parseBurn(c *Call) (b burnCall, exit sshserver.Exit, ok bool) {
	b = burnCall{only: -1, kernel: burnKernel, seconds: 10, grace: burnGrace}
	args, taken := c.Argv, 0
	for i := 1; i < len(args); i++ {
		word := args[i]
		if strings.Contains(word, "-h") {
			return b, c.usage("%q", c.Argv), false
		}
		if strings.Contains(word, "-l") {
			for _, d := range devices(c.Node) {
				c.printf("ID %d: %s, %dMB\n", d.index, rack.GPUModel, rack.CUDAMemory*burnMegabyte/1000/1000)
			}
			return b, code(0), false
		}
		if strings.Contains(word, "-d") {
			b.precision = rack.FP64
			taken++
		}
		if strings.Contains(word, "-tc") {
			b.tensor = true
			taken++
		}
		for _, option := range []string{"-m", "-i"} {
			value, found := strings.CutPrefix(word, option)
			if !found {
				continue
			}
			taken++
			if value == "" {
				if i++; i < len(args) {
					value = args[i]
					taken++
				}
			}
			if !b.take(option, value) {
				fmt.Fprintf(c.Stderr, "Syntax error near %s\n", option)
				return b, code(exitInvalid), false
			}
		}
		if strings.HasPrefix(word, "-c") {
			taken++
			if i+1 < len(args) {
				b.kernel = args[i+1]
				taken++
			}
		}
		if strings.HasPrefix(word, "-stts") {
			taken++
			if i+1 < len(args) {
				n, _ := strconv.Atoi(args[i+1]) // atoi: what is no number is 0
				b.grace = time.Duration(n) * time.Second
				taken++
			}
		}
	}
	if len(args)-taken >= 2 {
		b.timed = true
		b.seconds, _ = strconv.Atoi(args[1+taken])
	}
	if b.tensor && b.precision == rack.FP32 {
		b.precision = rack.TF32
	}
	return b, code(0), true
}

func (b *burnCall) take(option, value string) bool {
	number, percent := strings.CutSuffix(value, "%")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case value == "" || option == "-m" && (err != nil || n == 0):
		return false
	case option == "-i":
		b.only = int(n)
	case percent:
		b.bytes = -n
	default:
		b.bytes = n * burnMegabyte
	}
	return true
}

// heading is what the parent prints first. Behind a pipe its output is kept
// until it has something to flush, and every process that it forks meanwhile
// has the heading too, and prints it when it ends.
func (b burnCall) heading() string {
	text := ""
	if !b.timed {
		text = "Run length not specified in the command line. "
	}
	return text + fmt.Sprintf("Using compare file: %s\nBurning for %d seconds.\n", b.kernel, b.seconds)
}

// use is the memory that each process takes.
func (b burnCall) use() int64 {
	const available = burnAvailable * burnMegabyte
	switch {
	case b.bytes > 0:
		return b.bytes
	case b.bytes < 0:
		return available * -b.bytes / 100
	}
	return available * burnShare / 100
}

// product is the size of one product's result.
func (b burnCall) product() int64 {
	if b.precision == rack.FP64 {
		return 2 * burnProduct
	}
	return burnProduct
}

// products is how many products make a report: as many as fit beside the two
// that are multiplied.
func (b burnCall) products() int64 { return max(1, b.use()/b.product()-2) }

// listen prints the progress until the time is over. The zero Exit says that
// it is.
func (b burnCall) listen(ctx context.Context, c *Call, clients []*burning, start time.Time) sshserver.Exit {
	heading := b.heading()
	summary := float64(burnSummary)
	sampled := start
	for {
		now := slices.MinFunc(clients, func(x, y *burning) int { return x.next.Compare(y.next) }).next
		if exit := pause(ctx, time.Until(now)); exit.Signal != "" {
			return exit
		}
		now = time.Now()
		if now.Sub(sampled) >= burnSamples {
			sampled = now
			readTemperatures(clients)
		}
		for _, g := range clients {
			if now.Add(burnTogether).Before(g.next) {
				continue
			}
			if g.done >= 0 && (g.failure != "" || c.Node.State(g.slot).Presence != rack.Present) {
				g.die(b, c)
				continue
			}
			g.report(b)
		}
		elapsed := min(100*float64(now.Unix()-start.Unix())/float64(max(1, b.seconds)), 100)
		c.printf("%s\r%s", heading, progress(elapsed, clients))
		heading = ""
		for _, g := range clients {
			g.faulty = g.faulty || g.errors != 0
		}
		if summary < elapsed {
			summary = elapsed + burnSummary
			c.printf("\n\tSummary at:   %s\n\n", now.UTC().Format("Mon Jan _2 15:04:05 UTC 2006"))
			for _, g := range clients {
				g.errors = 0
			}
		}
		if !slices.ContainsFunc(clients, func(g *burning) bool { return g.done >= 0 }) {
			fmt.Fprint(c.Stderr, "\n\nNo clients are alive!  Aborting\n")
			return code(exitNoClients)
		}
		if now.Unix() > start.Unix()+int64(b.seconds) {
			return sshserver.Exit{}
		}
	}
}

// report is what a process says after a batch of products: how many, and how
// many elements of them differ from the first.
func (g *burning) report(b burnCall) {
	if g.done < 0 {
		// Of a process that has ended the parent reads nothing, again and
		// again, and prints a line each time; here it does so once a second.
		g.next = g.next.Add(time.Second)
		return
	}
	g.rate = float64(g.ops) * burnOperations / g.next.Sub(g.last).Seconds() / 1e9
	g.done += g.ops
	g.last = g.next
	if g.node.WrongData(g.slot) {
		g.errors += 1 + int64(g.node.Rack().Draw("burn", g.node.Name, g.slot, g.done)%97)
	}
	seconds := float64(g.ops) * burnOperations / g.node.State(g.slot).Gemm(b.precision)
	g.next = g.next.Add(time.Duration(seconds * float64(time.Second)))
}

// die is the end of a process whose GPU has gone: it reports -1 twice, and
// what it had kept of its output comes out.
func (g *burning) die(b burnCall, c *Call) {
	if g.failure != "" {
		fmt.Fprintf(c.Stderr, "Couldn't init a GPU test: %s\n", g.failure)
		fmt.Fprintf(c.Stderr, "read[%d] error 0", g.index)
		said := b.heading()
		if !g.lost {
			said += b.initialised(g.index)
		}
		c.printf("%s", said)
	} else {
		fmt.Fprint(c.Stderr, "Failure during compute: Error in Read faultyelemdata (gpu_burn-drv.cpp:275): unspecified launch failure\n")
		c.printf("%s%s", b.heading(), b.initialised(g.index))
	}
	g.done = -1
	g.errors--
	g.release()
	g.release = func() {}
	g.next = time.Now().Add(time.Second)
}

// initialised is what a process says of its buffers.
func (b burnCall) initialised(index int) string {
	kind := "FLOATS"
	if b.precision == rack.FP64 {
		kind = "DOUBLES"
	}
	tensor := ""
	if b.tensor {
		tensor = ", using Tensor Cores"
	}
	return fmt.Sprintf("Initialized device %d with %d MB of memory (%d MB available, using %d MB of it), using %s%s\n"+
		"Results are %d bytes each, thus performing %d iterations\n",
		index, rack.CUDAMemory, burnAvailable, b.use()/burnMegabyte, kind, tensor, b.product(), b.products())
}

// readTemperatures is what the parent reads of nvidia-smi, which it runs
// beside; a lost GPU ends that.
func readTemperatures(clients []*burning) {
	for _, d := range devices(clients[0].node) {
		if d.lost {
			return
		}
	}
	for _, g := range clients {
		if s := g.node.State(g.slot); s.Presence == rack.Present {
			g.celsius = int(s.Temperature + 0.5)
		}
	}
}

// progress is one line of progress.
func progress(elapsed float64, clients []*burning) string {
	var done, errors, temps []string
	for _, g := range clients {
		done = append(done, fmt.Sprintf("%d (%.0f Gflop/s) ", g.done, g.rate))
		note := ""
		switch {
		case g.done == -1:
			note = " (DIED!)"
		case g.errors != 0:
			note = " (WARNING!)"
		}
		errors = append(errors, fmt.Sprintf("%d %s", g.errors, note))
		celsius := "-- "
		if g.celsius != 0 {
			celsius = fmt.Sprintf("%d C ", g.celsius)
		}
		temps = append(temps, celsius)
	}
	return fmt.Sprintf("%.1f%%  proc'd: %s  errors: %s  temps: %s", elapsed,
		strings.Join(done, "- "), strings.Join(errors, "- "), strings.Join(temps, "- "))
}

// finish ends the processes, which say what they kept, and prints what each
// GPU was found to be.
func (b burnCall) finish(ctx context.Context, c *Call, clients []*burning) sshserver.Exit {
	c.printf("\nKilling processes with SIGTERM (soft kill)\n")
	for _, g := range clients {
		g.release()
		g.release = func() {}
		if g.done >= 0 {
			c.printf("%s%sFreed memory for dev %d\nUninitted cublas\n", b.heading(), b.initialised(g.index), g.index)
		}
	}
	if exit := pause(ctx, b.grace); exit.Signal != "" {
		return exit
	}
	c.printf("done\n\nTested %d GPUs:\n", len(clients))
	for i, g := range clients {
		word := "OK"
		if g.faulty {
			word = "FAULTY"
		}
		c.printf("\tGPU %d: %s\n", i, word)
	}
	return code(0)
}
