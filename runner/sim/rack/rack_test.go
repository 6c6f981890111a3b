package rack

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("gpu%03d", i+1)
	}
	return all
}

func build(t *testing.T, nodes int, seed uint64) *Rack {
	t.Helper()
	r, err := New(Config{Nodes: names(nodes), Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func inject(t *testing.T, r *Rack, f Fault) {
	t.Helper()
	if err := r.Inject(f); err != nil {
		t.Fatal(err)
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestOneSeedIsOneRack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, other := build(t, 4, 9), build(t, 4, 9), build(t, 4, 10)
		seen := make(map[string]bool)
		for i, n := range a.Nodes() {
			same, unlike := b.Nodes()[i], other.Nodes()[i]
			if n.MachineID != same.MachineID || n.GPUs != same.GPUs || n.State(3) != same.State(3) {
				t.Errorf("%s differs between two racks of one seed", n.Name)
			}
			if n.MachineID == unlike.MachineID || n.GPUs[0].UUID == unlike.GPUs[0].UUID {
				t.Errorf("%s is the same in racks of two seeds", n.Name)
			}
			for _, identity := range []string{n.MachineID, n.BootID, n.Serial, n.GPUs[0].UUID, n.GPUs[7].UUID, n.GPUs[7].Serial} {
				if seen[identity] {
					t.Errorf("%s is there twice", identity)
				}
				seen[identity] = true
			}
		}
	})
}

func TestBurningGPUGetsWarmAndStaysBelowSlowdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			n := build(t, 1, seed).Nodes()[0]
			idle := n.State(2)
			if idle.Temperature < 26 || idle.Temperature > 32 || idle.Power > 80 || idle.Reasons != ReasonIdle || idle.Clock != IdleClock {
				t.Fatalf("seed %d: idle GPU shows %+v", seed, idle)
			}
			release := n.LoadGPU(2, 1)
			pass(5 * time.Minute)
			hot := n.State(2)
			if hot.Temperature < 60 || hot.Temperature > 72 {
				t.Errorf("seed %d: %.1f °C after five minutes, want about 66", seed, hot.Temperature)
			}
			if math.Abs(hot.Power-PowerLimit) > 8 || hot.Reasons != ReasonPowerCap {
				t.Errorf("seed %d: %.0f W with reasons %#x, want the limit and its reason", seed, hot.Power, hot.Reasons)
			}
			if math.Abs(hot.Pace-1) > 0.01 {
				t.Errorf("seed %d: pace %.3f of a healthy GPU", seed, hot.Pace)
			}
			if beside := n.State(3); beside.Temperature > 32 {
				t.Errorf("seed %d: an idle sibling has %.1f °C", seed, beside.Temperature)
			}
			release()
			pass(5 * time.Minute)
			if cold := n.State(2); cold.Temperature > 32 || cold.Reasons != ReasonIdle {
				t.Errorf("seed %d: %.1f °C five minutes after the load", seed, cold.Temperature)
			}
		}
	})
}

func TestHotGPUIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 1, 1)
		n := r.Nodes()[0]
		inject(t, r, Fault{Kind: KindHotGPU, Node: n.Name, Part: "gpu5"})
		n.LoadGPU(5, 1)
		pass(5 * time.Minute)
		slowed, hottest := 0, 0.0
		for range 120 {
			pass(time.Second)
			s := n.State(5)
			hottest = max(hottest, s.Temperature)
			if s.Reasons&ReasonHWThermal != 0 {
				slowed++
				if s.Reasons&ReasonHWSlowdown == 0 || s.Pace > 0.65 {
					t.Fatalf("slowed down with reasons %#x and pace %.2f", s.Reasons, s.Pace)
				}
			}
		}
		if slowed < 10 || hottest < SlowdownAt-1 || hottest > SlowdownAt+4 {
			t.Errorf("slowed down in %d of 120 s, at most %.1f °C", slowed, hottest)
		}
	})
}

// Heat and faults keep their own time.
func TestSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Nodes: names(1), Seed: 1, Speed: 60})
		if err != nil {
			t.Fatal(err)
		}
		n := r.Nodes()[0]
		inject(t, r, Fault{Kind: KindXID79, Node: n.Name, Part: "gpu1", After: time.Minute, For: time.Minute})
		n.LoadGPU(0, 1)
		pass(900 * time.Millisecond)
		if s := n.State(1); s.Presence != Present {
			t.Error("the GPU is lost before the minute has passed")
		}
		pass(200 * time.Millisecond)
		if s := n.State(1); s.Presence != Lost {
			t.Error("the GPU is there after the minute")
		}
		pass(time.Second)
		if s := n.State(1); s.Presence != Present {
			t.Error("the fault has not ended")
		}
		pass(3 * time.Second)
		if s := n.State(0); s.Temperature < 60 {
			t.Errorf("%.1f °C after five minutes of the rack's time", s.Temperature)
		}
	})
}

func allReduce(t *testing.T, r *Rack, nodes int, bytes int64) (CollectiveResult, float64) {
	t.Helper()
	result, err := r.AllReduce(Collective{Nodes: r.Nodes()[:nodes], PerNode: GPUs, Bytes: bytes, Element: 4}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ranks := float64(nodes * GPUs)
	return result, float64(bytes) / result.Seconds / 1e9 * 2 * (ranks - 1) / ranks
}

func TestAllReduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 32, 3)
		for _, c := range []struct {
			nodes    int
			low, top float64 // GB/s of bus bandwidth
			path     string
		}{{1, 465, 485, "NVLS"}, {2, 360, 376, "Ring"}, {32, 360, 376, "Ring"}} {
			result, bus := allReduce(t, r, c.nodes, 16<<30)
			if bus < c.low || bus > c.top || result.Path != c.path || result.Wrong != 0 {
				t.Errorf("%d nodes: %.1f GB/s by %s, %d wrong; want %g to %g by %s", c.nodes, bus, result.Path, result.Wrong, c.low, c.top, c.path)
			}
		}
		_, small := allReduce(t, r, 1, 8)
		_, large := allReduce(t, r, 1, 1<<30)
		if small > large/1000 {
			t.Errorf("8 bytes get %.3f GB/s and 1 GiB %.1f", small, large)
		}
	})
}

func TestFaultsOfCollectives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 4, 3)
		inject(t, r, Fault{Kind: KindSlowLink, Node: "gpu003", Part: "mlx5_2"})
		if _, bus := allReduce(t, r, 4, 16<<30); bus > 190 {
			t.Errorf("%.1f GB/s over a rail of half the rate", bus)
		}
		if _, bus := allReduce(t, r, 2, 16<<30); bus < 360 {
			t.Errorf("%.1f GB/s between nodes without the slow link", bus)
		}
		if s := r.Nodes()[2].NICState(2); s.Rate != SlowRate || !s.Up {
			t.Errorf("the slow port shows %+v", s)
		}
		r.Clear(func(Fault) bool { return true })

		inject(t, r, Fault{Kind: KindWrongData, Node: "gpu002", Part: "gpu6"})
		if result, _ := allReduce(t, r, 4, 1<<30); result.Wrong < 1 {
			t.Error("no element is wrong")
		}
		r.Clear(func(Fault) bool { return true })
		if result, _ := allReduce(t, r, 4, 1<<30); result.Wrong != 0 {
			t.Errorf("%d elements are wrong after the fault", result.Wrong)
		}

		inject(t, r, Fault{Kind: KindXID79, Node: "gpu001", Part: "gpu0"})
		_, err := r.AllReduce(Collective{Nodes: r.Nodes(), PerNode: GPUs, Bytes: 8, Element: 4}, 1)
		if part := (*PartError)(nil); !errors.As(err, &part) || part.Node != "gpu001" || part.Slot != 0 {
			t.Errorf("a lost GPU takes part: %v", err)
		}
		r.Clear(func(Fault) bool { return true })
		inject(t, r, Fault{Kind: KindDeadGPU, Node: "gpu001", Part: "gpu0"})
		if _, err := r.AllReduce(Collective{Nodes: r.Nodes(), PerNode: GPUs, Bytes: 8, Element: 4}, 1); !errors.Is(err, ErrTooFew) {
			t.Errorf("a dead GPU takes part: %v", err)
		}
		if slots, lost := r.Nodes()[0].Answering(); fmt.Sprint(slots) != "[1 2 3 4 5 6 7]" || len(lost) != 7 {
			t.Errorf("slots %v answer", slots)
		}
	})
}

func TestFlappingLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 2, 3)
		n := r.Nodes()[1]
		inject(t, r, Fault{Kind: KindFlappingLink, Node: n.Name, Part: "mlx5_4", After: time.Second})
		if s := n.NICState(4); s.LinkDowned != 0 || !s.Up {
			t.Errorf("before the fault the port shows %+v", s)
		}
		pass(1100 * time.Millisecond)
		if s := n.NICState(4); s.LinkDowned != 1 || s.Up {
			t.Errorf("in the first flap the port shows %+v", s)
		}
		if result, _ := allReduce(t, r, 2, 8); result.Seconds < 0.25 || result.Seconds > 0.35 {
			t.Errorf("a collective in the flap takes %g s, want what is left of it", result.Seconds)
		}
		pass(12 * time.Second)
		if s := n.NICState(4); s.LinkDowned != 3 || !s.Up {
			t.Errorf("after three flaps the port shows %+v", s)
		}
		downs := 0
		for _, line := range n.KernelLog() {
			if strings.HasSuffix(line.Text, "ibs4: Link down") {
				downs++
			}
		}
		if downs != 3 {
			t.Errorf("the kernel log has %d link downs, want 3", downs)
		}
		r.Clear(func(Fault) bool { return true })
		pass(time.Hour)
		if s := n.NICState(4); s.LinkDowned != 3 {
			t.Errorf("the counter went on to %d after the fault was cleared", s.LinkDowned)
		}
	})
}

func TestKernelLogIsInOrderAndKeepsWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 1, 3)
		n := r.Nodes()[0]
		n.Log(PriorityNotice, "one")
		inject(t, r, Fault{Kind: KindXID79, Node: n.Name, Part: "gpu2", After: time.Second})
		pass(2 * time.Second)
		n.Log(PriorityNotice, "two")
		lines := n.KernelLog()
		if !strings.HasPrefix(lines[0].Text, "Linux version ") {
			t.Errorf("the log begins with %q", lines[0].Text)
		}
		var tail []string
		for _, line := range lines[len(lines)-5:] {
			tail = append(tail, line.Text)
		}
		want := []string{
			"one",
			"NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			"NVRM: GPU 0000:52:00.0: GPU has fallen off the bus.",
			"NVRM: GPU 0000:52:00.0: GPU serial number is " + n.GPUs[2].Serial + ".",
			"two",
		}
		if strings.Join(tail, "\n") != strings.Join(want, "\n") {
			t.Errorf("the log ends with\n%s\nwant\n%s", strings.Join(tail, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 32, 3)
		alone := r.Nodes()[0].Storage(Client{Block: 4096, InFlight: 32}).End()
		if alone.Rate < 150e3 || alone.Rate > 180e3 {
			t.Errorf("one client with 32 in flight gets %.0f requests a second", alone.Rate)
		}
		inject(t, r, Fault{Kind: KindSlowStorage, Node: "gpu009"})
		var streams []*Stream
		for _, n := range r.Nodes() {
			streams = append(streams, n.Storage(Client{Block: 4096, InFlight: 512}))
		}
		for i, s := range streams {
			got := s.End()
			if flight := got.Rate * got.Latency; math.Abs(flight-512) > 0.01 {
				t.Errorf("client %d: rate × latency is %.3f, want 512", i, flight)
			}
			low, top := 9e6/32*0.96, 9e6/32*1.04
			if i == 8 {
				low, top = low/4, top/4
			}
			if got.Rate < low || got.Rate > top {
				t.Errorf("client %d of 32 gets %.0f requests a second, want %.0f to %.0f", i, got.Rate, low, top)
			}
		}
		synced := r.Nodes()[0].Storage(Client{Write: true, Sync: true, Block: 4096, InFlight: 1}).End()
		if total := synced.Latency + synced.Sync; math.Abs(total*synced.Rate-1) > 1e-9 || synced.Sync < 2*synced.Latency {
			t.Errorf("a synced write takes %g s and its fsync %g s at %g a second", synced.Latency, synced.Sync, synced.Rate)
		}
	})
}

func TestServiceElectsAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 5, 3)
		if err := r.Put("a", "1"); err != nil || r.Leader() != "gpu001" {
			t.Fatalf("leader %q: %v", r.Leader(), err)
		}
		first, second := r.Nodes()[0], r.Nodes()[1]
		if !first.KillMember() || first.KillMember() {
			t.Error("a member can be killed once")
		}
		if err := r.Put("b", "2"); !errors.Is(err, ErrNoLeader) {
			t.Errorf("without a leader a write gives %v", err)
		}
		pass(electionTime)
		if err := r.Put("b", "2"); err != nil || r.Leader() != "gpu002" {
			t.Errorf("after the election the leader is %q: %v", r.Leader(), err)
		}
		second.KillMember()
		pass(time.Minute)
		if r.Leader() != "" {
			t.Errorf("one of three members leads: %s", r.Leader())
		}
		first.StartMember()
		pass(electionTime)
		values, err := r.Get(func(string) bool { return true })
		if err != nil || fmt.Sprint(values) != "[[a 1] [b 2]]" {
			t.Errorf("after two losses the values are %v: %v", values, err)
		}
		if r.Nodes()[4].Member() || r.Nodes()[4].KillMember() {
			t.Error("the fifth node is a member")
		}
	})
}

func TestFaultsAreChecked(t *testing.T) {
	r := build(t, 2, 1)
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: "rust", Node: "gpu001"}, `fault "rust" is not known: choose one of dead_gpu, hot_gpu`},
		{Fault{Kind: KindHotGPU, Node: "gpu003", Part: "gpu0"}, `the rack has no node "gpu003"`},
		{Fault{Kind: KindHotGPU, Node: "gpu001"}, `strikes a gpu and "" is none: choose one of gpu0, gpu1`},
		{Fault{Kind: KindSlowLink, Node: "gpu001", Part: "mlx5_8"}, `strikes a nic and "mlx5_8" is none`},
		{Fault{Kind: KindHungNode, Node: "gpu001", Part: "gpu0"}, `strikes a whole node: leave the part "gpu0" out`},
		{Fault{Kind: KindHungNode, Node: "gpu001", After: -1}, "cannot be negative"},
	} {
		if err := r.Inject(c.fault); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.fault, err, c.want)
		}
	}
	if len(r.Faults()) != 0 {
		t.Errorf("faults %v are open", r.Faults())
	}
}

func TestRackSizes(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "give 1 to 1024"},
		{Config{Nodes: names(1025)}, "give 1 to 1024"},
		{Config{Nodes: []string{"a", "a"}}, "node a is there twice"},
		{Config{Nodes: names(1), Speed: -1}, "give more than 0"},
		{Config{Nodes: names(1), Speed: math.NaN()}, "give more than 0"},
	} {
		if _, err := New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d nodes, speed %g: %v, want %q", len(c.config.Nodes), c.config.Speed, err, c.want)
		}
	}
	last := build(t, MaxNodes, 1).Nodes()[MaxNodes-1]
	if last.Cabinet() != "A256" || last.Unit() != 25 || last.NICs[7].LID != 8192 {
		t.Errorf("the last node stands in %s unit %d with lid %d", last.Cabinet(), last.Unit(), last.NICs[7].LID)
	}
}

func TestServiceOutlivesAHungLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 3, 3)
		inject(t, r, Fault{Kind: KindHungNode, Node: "gpu001"})
		if err := r.Put("a", "1"); !errors.Is(err, ErrNoLeader) {
			t.Errorf("a hung leader takes a write: %v", err)
		}
		pass(electionTime)
		if err := r.Put("a", "1"); err != nil || r.Leader() != "gpu002" {
			t.Errorf("the leader is %q: %v", r.Leader(), err)
		}
		inject(t, r, Fault{Kind: KindHungNode, Node: "gpu003"})
		pass(time.Minute)
		if err := r.Put("a", "2"); !errors.Is(err, ErrNoLeader) {
			t.Errorf("one of three takes a write: %v", err)
		}
		r.Clear(func(Fault) bool { return true })
		r.Leader()
		pass(electionTime)
		if err := r.Put("a", "2"); err != nil {
			t.Error(err)
		}
	})
}

// What a link's flaps have left in its counters stays when it is mended, and
// each counts once.
func TestFlapsOfTwoFaultsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, 1, 1)
		n := r.Nodes()[0]
		for range 2 {
			inject(t, r, Fault{Kind: KindFlappingLink, Node: n.Name, Part: "mlx5_4"})
			pass(flapPeriod + time.Second)
			r.Clear(func(Fault) bool { return true })
			pass(time.Hour)
		}
		if s, want := n.NICState(4), (NICState{Up: true, Rate: NICRate, LinkDowned: 4, SymbolErrs: 160}); s != want {
			t.Errorf("the port shows %+v, want %+v", s, want)
		}
		if logged := len(r.flaps(OpenFault{Begin: r.Start()}, time.Now(), 3)); logged != 3 {
			t.Errorf("%d flaps are in the log, want the last 3", logged)
		}
	})
}

// At any speed that a rack may have, a fault has its begin and its answer.
func TestFaultsAtExtremeSpeeds(t *testing.T) {
	for _, c := range []struct {
		speed  float64
		downed int64
	}{{1e6, 720_000_001}, {1e-300, 1}} {
		synctest.Test(t, func(t *testing.T) {
			r, err := New(Config{Nodes: names(1), Seed: 1, Speed: c.speed})
			if err != nil {
				t.Fatal(err)
			}
			n := r.Nodes()[0]
			inject(t, r, Fault{Kind: KindFlappingLink, Node: n.Name, Part: "mlx5_4"})
			inject(t, r, Fault{Kind: KindHungNode, Node: n.Name, After: time.Hour})
			if n.Hung() {
				t.Error("a fault of the next hour is in effect now")
			}
			pass(time.Hour)
			if s := n.NICState(4); s.LinkDowned != c.downed {
				t.Errorf("speed %g: %d flaps, want %d", c.speed, s.LinkDowned, c.downed)
			}
			if lines := len(n.KernelLog()); lines > 3*loggedFlaps {
				t.Errorf("speed %g: %d lines in the log", c.speed, lines)
			}
		})
	}
}
