package evidence

// ExecutorSim is the executor whose nodes are all simulated, in the process.
const ExecutorSim = "sim"

// SimulatedNodes names the nodes that anything in a run shows to be simulated,
// in the order in which it shows: the executor of the plan, the inventory, and
// each identification in the journal, by its mark or by the server's own name.
// So who would hide it has to change all of them. Plan and inventory may be
// nil.
func SimulatedNodes(p *Plan, i *Inventory, records []Record) []string {
	var names []string
	known := make(map[string]bool)
	add := func(node string) {
		if !known[node] {
			known[node] = true
			names = append(names, node)
		}
	}
	if p != nil && p.Executor == ExecutorSim {
		for _, n := range p.Fleet.Nodes {
			add(n.Name)
		}
	}
	seen := func(n NodeIdentity) {
		if n.Simulated || SimulatedServer(n.SSHVersion) {
			add(n.Node)
		}
	}
	if i != nil {
		for _, n := range i.Nodes {
			seen(n)
		}
	}
	for _, r := range records {
		if r.Identity != nil {
			seen(*r.Identity)
		}
	}
	return names
}
