package evidence

import "testing"

// TestPlanDigest: the digest that is taken on the way is that of the document.
func TestPlanDigest(t *testing.T) {
	for _, cells := range []int{0, 1, 3} {
		plan := &Plan{MediaType: MediaPlan, Name: "r", Runbook: DigestOf(nil)}
		for i := range cells {
			plan.Cells = append(plan.Cells, Cell{ID: "t/" + string(rune('a'+i)), Test: "t", Nodes: "n<1>", Repetition: 1})
		}
		content, err := Encode(plan)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := PlanDigest(plan)
		if err != nil || digest != DigestOf(content) {
			t.Errorf("%d cells: %s and %v, want %s", cells, digest, err, DigestOf(content))
		}
		var again Plan
		if newer, err := DecodeDocument(content, MediaPlan, &again); err != nil || newer || len(again.Cells) != cells {
			t.Errorf("%d cells: decoded %d, %v", cells, len(again.Cells), err)
		}
	}
}
