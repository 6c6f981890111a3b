package evidence

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 cells", 1: "1 cell", 2: "2 cells", 132: "132 cells"} {
		if got := Count(n, "cell"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestOrEmpty(t *testing.T) {
	if got := OrEmpty[int](nil); got == nil || len(got) != 0 {
		t.Errorf("nil gives %#v", got)
	}
	if got := OrEmpty([]int{1}); len(got) != 1 || got[0] != 1 {
		t.Errorf("[1] gives %v", got)
	}
}
