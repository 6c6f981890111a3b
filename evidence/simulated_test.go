package evidence

import (
	"slices"
	"testing"
)

// One sign of it is enough, wherever it is.
func TestSimulatedNodes(t *testing.T) {
	fleet := Fleet{Nodes: []Node{{Name: "a"}, {Name: "b"}}}
	const server = "SSH-2.0-rackproof-sim"
	identified := func(n NodeIdentity) []Record { return []Record{{Event: EventOpen}, {Identity: &n}, {Identity: &n}} }
	for _, c := range []struct {
		name      string
		executor  string
		inventory *Inventory
		records   []Record
		want      []string
	}{
		{"real", "ssh", &Inventory{Nodes: []NodeIdentity{{Node: "a", SSHVersion: "SSH-2.0-OpenSSH_9.6"}}}, identified(NodeIdentity{Node: "b"}), nil},
		{"executor alone", ExecutorSim, nil, nil, []string{"a", "b"}},
		{"mark in the inventory", "ssh", &Inventory{Nodes: []NodeIdentity{{Node: "a"}, {Node: "b", Simulated: true}}}, nil, []string{"b"}},
		{"name in the inventory", "ssh", &Inventory{Nodes: []NodeIdentity{{Node: "a", SSHVersion: server}}}, nil, []string{"a"}},
		{"mark in the journal", "ssh", &Inventory{Nodes: []NodeIdentity{{Node: "a"}}}, identified(NodeIdentity{Node: "a", Simulated: true}), []string{"a"}},
		{"name in the journal", "ssh", nil, identified(NodeIdentity{Node: "b", SSHVersion: server}), []string{"b"}},
		{"everywhere", ExecutorSim, &Inventory{Nodes: []NodeIdentity{{Node: "b", Simulated: true}, {Node: "b", Simulated: true}}}, identified(NodeIdentity{Node: "a", Simulated: true}), []string{"a", "b"}},
	} {
		if got := SimulatedNodes(&Plan{Executor: c.executor, Fleet: fleet}, c.inventory, c.records); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := SimulatedNodes(nil, nil, nil); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}
