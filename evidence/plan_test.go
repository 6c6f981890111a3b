package evidence

import (
	"fmt"
	"testing"
)

func TestCheckNodes(t *testing.T) {
	plan := func() *Plan {
		p := &Plan{
			Tests:    []Test{{Name: "t", Nodes: "n[1-2]"}},
			Cells:    []Cell{{ID: "t/n1.r1", Nodes: "n1"}, {ID: "t/n2.r1", Nodes: "n2"}},
			Releases: []Release{{Name: "final", Nodes: "n[1-2]"}},
		}
		p.Fleet.Nodes = []Node{{Name: "n1"}, {Name: "n2"}}
		return p
	}
	for _, c := range []struct {
		name   string
		damage func(*Plan)
		want   string
	}{
		{"sound", func(*Plan) {}, ""},
		{"test outside of the fleet", func(p *Plan) { p.Tests[0].Nodes = "n[1-3]" }, `nodes of test "t": n3 is not in the fleet`},
		{"cell outside of the fleet", func(p *Plan) { p.Cells[1].Nodes = "x1y[1-65536]" }, `nodes of cell "t/n2.r1": x1y1 is not in the fleet`},
		{"release outside of the fleet", func(p *Plan) { p.Releases[0].Nodes = "n1,m1" }, `nodes of release "final": m1 is not in the fleet`},
		{"unreadable", func(p *Plan) { p.Cells[0].Nodes = "n[1" }, `nodes of cell "t/n1.r1": node set: unclosed bracket at byte 2: The range opened by "[" is never closed. Write "]" after its last number.`},
	} {
		p := plan()
		c.damage(p)
		got := ""
		if err := p.CheckNodes(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPlanOfMoreNodesThanAnybodyHolds(t *testing.T) {
	p := &Plan{}
	for i := 1; i <= 65536; i++ {
		p.Fleet.Nodes = append(p.Fleet.Nodes, Node{Name: fmt.Sprintf("n%d", i)})
	}
	p.Tests = []Test{{Name: "t", Nodes: "n[1-65536]"}}
	for i := range 126 {
		p.Cells = append(p.Cells, Cell{ID: fmt.Sprint(i), Nodes: "n[1-65536]"})
	}
	p.Releases = []Release{{Name: "final", Nodes: "n[1-65536]"}}
	if err := p.CheckNodes(); err != nil {
		t.Fatal(err)
	}
	p.Cells = append(p.Cells, Cell{ID: "last", Nodes: "n1"})
	if err := p.CheckNodes(); err == nil || err.Error() != "its node sets name more than 8388608 nodes in all" {
		t.Fatal(err)
	}
}
