package runner

import (
	"maps"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// history is what the journal proves.
type history struct {
	identities map[string]evidence.NodeIdentity // by node: the first without a problem
	boots      map[string]string                // by node: the newest boot id
	skips      map[string]skip                  // by cell: the newest
	gates      map[string]evidence.GateResult   // by phase: the newest
	started    map[string]bool                  // phases
	ended      map[string]bool
	captured   map[captureOf]int // captures of one kind on one node, which are made in the plan's order
	openFaults []openFault       // in the order of their injection
}

// captureOf says of what, when and where a capture was made.
type captureOf struct{ phase, when, node string }

// forgetCaptures has the captures of a phase made again.
func (h *history) forgetCaptures(phase, when string) {
	maps.DeleteFunc(h.captured, func(c captureOf, _ int) bool { return c.phase == phase && c.when == when })
}

type skip struct {
	problem evidence.Problem
	closed  bool // the run was closed after it
}

func readHistory(records []evidence.Record) history {
	h := history{
		identities: make(map[string]evidence.NodeIdentity),
		boots:      make(map[string]string),
		skips:      make(map[string]skip),
		gates:      make(map[string]evidence.GateResult),
		started:    make(map[string]bool),
		ended:      make(map[string]bool),
		captured:   make(map[captureOf]int),
	}
	for _, record := range records {
		switch record.Event {
		case evidence.EventNode:
			if id := record.Identity; id != nil && id.MachineID+id.HostKey+id.Serial != "" {
				if _, known := h.identities[record.Node]; !known {
					h.identities[record.Node] = *id
				}
				if id.BootID != "" {
					h.boots[record.Node] = id.BootID
				}
			}
		case evidence.EventSkip:
			if record.Problem != nil {
				h.skips[record.Cell] = skip{problem: *record.Problem}
			}
		case evidence.EventGate:
			if record.Gate != nil {
				h.gates[record.Phase] = *record.Gate
			}
		case evidence.EventPhaseStart:
			h.started[record.Phase] = true
		case evidence.EventPhaseEnd:
			h.ended[record.Phase] = true
		case evidence.EventCapture:
			h.captured[captureOf{record.Phase, evidence.CaptureWhen(record.Path), record.Node}]++
		case evidence.EventFaultOpen:
			h.openFaults = append(h.openFaults, openFault{record: record})
		case evidence.EventFaultClose:
			h.openFaults = slices.DeleteFunc(h.openFaults, func(f openFault) bool { return f.closedBy(record) })
		case evidence.EventClose:
			for cell, s := range h.skips {
				s.closed = true
				h.skips[cell] = s
			}
		}
	}
	return h
}
