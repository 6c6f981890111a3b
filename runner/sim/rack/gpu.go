package rack

import (
	"fmt"
	"math"
	"time"
)

// Figures of an NVIDIA H100 SXM5 80GB: its data sheet for power, memory and
// clocks; idle power and temperatures as operators see them in air-cooled
// nodes.
const (
	GPUModel      = "NVIDIA H100 80GB HBM3"
	GPUDevice     = "2330" // PCI device id
	GPUMemory     = 81559  // MiB that nvidia-smi shows
	PowerLimit    = 700.0  // W
	BoostClock    = 1980   // MHz
	MemoryClock   = 2619   // MHz
	IdleClock     = 345    // MHz
	VBIOS         = "96.00.89.00.01"
	InforomImage  = "G520.0200.00.05"
	idlePower     = 72.0  // W
	fullPower     = 815.0 // W, what a full tensor load would draw without the limit
	inlet         = 24.0  // °C, air
	resistance    = 0.060 // °C per W from inlet to die
	thermalTime   = 18.0  // s, until two thirds of a step
	SlowdownAt    = 87.0  // °C, hardware thermal slowdown begins
	slowdownUntil = 84.0  // °C, and ends
	slowdownShare = 0.55  // of the clock that is left
)

// CUDAMemory is what CUDA sees of GPUMemory, in MiB: the driver keeps the rest
// (memory.reserved of nvidia-smi).
const CUDAMemory = GPUMemory - 479

// Precision is the arithmetic of a matrix product.
type Precision int

// The precisions, as gpu_burn has them: single, single on tensor cores, and
// double.
const (
	FP32 Precision = iota
	TF32
	FP64
)

// gemmRates are the operations a second that large products get on a healthy
// GPU at full load: four fifths of the data sheet's 67, 495 and 67 TFLOP/s.
var gemmRates = [...]float64{FP32: 53.6e12, TF32: 396e12, FP64: 53.6e12}

// gemmLoads are how busy they keep a GPU, as LoadGPU counts it.
var gemmLoads = [...]float64{FP32: 0.8, TF32: 1, FP64: 0.9}

// Load is how busy products of the precision keep a GPU, as LoadGPU counts it.
func (p Precision) Load() float64 { return gemmLoads[p] }

// Gemm is the operations a second that products of the precision get.
func (s GPUState) Gemm(p Precision) float64 { return gemmRates[p] * s.Pace }

// Driver is the driver's version on every healthy node, OldDriver the one
// that a node with driver skew has.
const (
	Driver    = "550.90.07"
	OldDriver = "535.183.06"
)

// Reasons why a GPU's clock is not higher, as NVML counts its bits
// (nvmlClocksEventReasons of nvml.h).
const (
	ReasonIdle         uint64 = 0x1
	ReasonPowerCap     uint64 = 0x4
	ReasonHWSlowdown   uint64 = 0x8
	ReasonHWThermal    uint64 = 0x40
	ReasonHWPowerBrake uint64 = 0x80
)

// busIDs are the PCI addresses of a node's GPUs, in slot order, as a DGX H100
// has them.
var busIDs = [GPUs]string{
	"0000:1B:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0",
	"0000:9D:00.0", "0000:C3:00.0", "0000:D1:00.0", "0000:DF:00.0",
}

// GPU is what one GPU is.
type GPU struct {
	Slot   int // 0 to 7, in the order of PCI addresses
	Name   string
	UUID   string
	Serial string
	BusID  string // 0000:1B:00.0
}

func newGPU(n *Node, slot int) GPU {
	return GPU{
		Slot:   slot,
		Name:   fmt.Sprintf("gpu%d", slot),
		UUID:   "GPU-" + uuidOf(n.rack.hex(32, "gpu", n.Name, slot)),
		Serial: fmt.Sprintf("165%010d", n.rack.draw("gpu serial", n.Name, slot)%1e10),
		BusID:  busIDs[slot],
	}
}

// Presence is how far a GPU is there.
type Presence int

// A GPU that never answered has no index in nvidia-smi; one that fell off the
// bus keeps it and answers nothing.
const (
	Present Presence = iota
	Absent           // dead since boot
	Lost             // fell off the bus
)

// GPUState is what a GPU's sensors show.
type GPUState struct {
	Presence          Presence
	Temperature       float64 // °C
	MemoryTemperature float64 // °C
	Power             float64 // W
	Clock             float64 // MHz, of the multiprocessors
	MemoryClock       float64 // MHz
	Utilization       float64 // %, 0 to 100
	Reasons           uint64
	Load              float64 // the share that was asked
	// Pace is the share of a healthy GPU's arithmetic that the clock gives at
	// full load.
	Pace float64
}

// heat is a GPU's temperature as it was last worked out.
type heat struct {
	celsius float64
	at      time.Time
	slow    bool // hardware thermal slowdown
}

// spread is a GPU's own thermal resistance: some sit behind others.
func (n *Node) spread(gpu int) float64 {
	return resistance * (1 + 0.04*n.rack.noise("thermal", n.Name, gpu))
}

func (n *Node) idleTemperature(gpu int) float64 { return inlet + n.spread(gpu)*idlePower }

// capped is the clock share that the power limit leaves a load: power goes
// about with the square of the clock where the voltage follows it.
func capped(share float64) float64 {
	demand := share * (fullPower - idlePower)
	if demand <= PowerLimit-idlePower {
		return 1
	}
	return math.Sqrt((PowerLimit - idlePower) / demand)
}

// power is what a GPU draws under a load at a share of its clock.
func power(share, clock float64) float64 {
	return idlePower + share*(fullPower-idlePower)*clock*clock
}

// heatSteps bounds how many seconds are worked out one by one; before that
// the temperature has long settled.
const heatSteps = 600

// settle brings the temperature of a GPU up to now, under the load and the
// faults of the time since: dT/dt = (inlet + R·P - T)/τ, a second a step. The
// node is locked.
func (n *Node) settle(gpu int, now time.Time) {
	h := &n.heat[gpu]
	gone := now.Sub(h.at).Seconds() * n.rack.speed
	if gone <= 0 {
		return
	}
	h.at = now
	r := n.spread(gpu)
	if n.rack.faulty(KindHotGPU, n.Name, n.GPUs[gpu].Name, now) {
		r *= 1.75
	}
	share := n.loadOf(gpu)
	gone = min(gone, heatSteps)
	for gone > 0 {
		step := min(gone, 1)
		gone -= step
		clock := capped(share)
		if h.slow {
			clock = min(clock, slowdownShare)
		}
		target := inlet + r*power(share, clock)
		h.celsius += (target - h.celsius) * (1 - math.Exp(-step/thermalTime))
		switch {
		case h.celsius >= SlowdownAt:
			h.slow = true
		case h.celsius < slowdownUntil:
			h.slow = false
		}
	}
}

// State is what the sensors of the GPU in a slot show now.
func (n *Node) State(gpu int) GPUState {
	now := time.Now()
	if p := n.presence(gpu, now); p != Present {
		return GPUState{Presence: p}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle(gpu, now)
	h, share := n.heat[gpu], n.loadOf(gpu)
	s := GPUState{Load: share, MemoryClock: MemoryClock}
	clock := capped(share)
	switch {
	case share == 0:
		s.Reasons = ReasonIdle
	case clock < 1:
		s.Reasons = ReasonPowerCap
	}
	if h.slow {
		clock = min(clock, slowdownShare)
		s.Reasons |= ReasonHWSlowdown | ReasonHWThermal
	}
	wobble := func(what string) float64 { return n.rack.noise(what, n.Name, gpu, n.rack.at(now)) }
	s.Pace = clock / capped(1) * (1 + 0.004*wobble("pace"))
	s.Temperature = h.celsius + 0.4*wobble("sensor")
	s.MemoryTemperature = h.celsius + 9*share + 1
	s.Power = min(PowerLimit, power(share, clock)) * (1 + 0.01*wobble("power"))
	s.Clock = BoostClock*clock - 15*math.Abs(wobble("clock"))
	if share == 0 {
		s.Clock = IdleClock
	}
	s.Utilization = math.Round(100 * math.Min(1, share*1.02))
	return s
}

func (n *Node) presence(gpu int, now time.Time) Presence {
	name := n.GPUs[gpu].Name
	switch {
	case n.rack.faulty(KindDeadGPU, n.Name, name, now):
		return Absent
	case n.rack.faulty(KindXID79, n.Name, name, now):
		return Lost
	}
	return Present
}

// Answering are the slots of the GPUs that the driver has given an index, in
// its order, and whether each still answers.
func (n *Node) Answering() (slots []int, lost []bool) {
	now := time.Now()
	for slot := range n.GPUs {
		switch n.presence(slot, now) {
		case Present:
			slots, lost = append(slots, slot), append(lost, false)
		case Lost:
			slots, lost = append(slots, slot), append(lost, true)
		}
	}
	return slots, lost
}

// WrongData reports whether what the GPU computes is wrong now.
func (n *Node) WrongData(gpu int) bool {
	return n.rack.faulty(KindWrongData, n.Name, n.GPUs[gpu].Name, time.Now())
}

// DriverVersion is the version of the node's GPU driver.
func (n *Node) DriverVersion() string {
	if n.rack.faulty(KindDriverSkew, n.Name, "", time.Now()) {
		return OldDriver
	}
	return Driver
}
