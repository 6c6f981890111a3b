package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiffDocuments(t *testing.T) {
	for _, c := range []struct {
		name, want, got string
		diff            []difference
	}{
		{"same", `{"a":[1,2],"b":null}`, `{"b":null,"a":[1.0,2]}`, nil},
		{"value", `{"a":1}`, `{"a":2}`, []difference{{"a", "1", "2"}}},
		{"type", `{"a":1}`, `{"a":"1"}`, []difference{{"a", "1", `"1"`}}},
		{"member lost", `{"a":1,"b":2}`, `{"a":1}`, []difference{{"b", "2", absent}}},
		{"member added", `{"a":1}`, `{"a":1,"b":2}`, []difference{{"b", absent, "2"}}},
		{"large integers", `{"a":9007199254740993}`, `{"a":9007199254740992}`, []difference{{"a", "9007199254740993", "9007199254740992"}}},
		{"plain list", `[1,2,3]`, `[1,3]`, []difference{{"[1]", "2", "3"}, {"[2]", "3", absent}}},
		{"named element lost", `[{"name":"a"},{"name":"b"},{"name":"c"}]`, `[{"name":"a"},{"name":"c"}]`, []difference{{`["b"]`, `{"name":"b"}`, absent}}},
		{"named elements swapped", `[{"id":"a"},{"id":"b"}]`, `[{"id":"b"},{"id":"a"}]`, []difference{{" (order)", `"\"a\" \"b\""`, `"\"b\" \"a\""`}}},
		{"findings", `{"findings":[{"test":"t","threshold":"x","subject":"n1","margin":1}]}`, `{"findings":[{"test":"t","threshold":"x","subject":"n1","margin":2}]}`,
			[]difference{{`findings["t" "x" "n1"].margin`, "1", "2"}}},
		{"list for object", `{"a":[]}`, `{"a":{}}`, []difference{{"a", "[]", "{}"}}},
	} {
		got, err := diffDocuments([]byte(c.want), []byte(c.got))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.diff, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestDiffIsBounded(t *testing.T) {
	got, err := diffDocuments([]byte("["+strings.Repeat("1,", 500)+"1]"), []byte("["+strings.Repeat("2,", 500)+"2]"))
	if err != nil || len(got) != maxDifferences {
		t.Errorf("%d differences, %v", len(got), err)
	}
	got, err = diffDocuments([]byte(`"`+strings.Repeat("a", 5000)+`"`), []byte(`""`))
	if err != nil || len(got) != 1 || len(got[0].Want) > maxShown+4 {
		t.Errorf("%d bytes, %v", len(got[0].Want), err)
	}
}

func FuzzDiffDocuments(f *testing.F) {
	f.Add(`{"a":[{"name":"x"}]}`, `{"a":[{"name":"y"},{"name":"y"}]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if same, err := diffDocuments([]byte(a), []byte(a)); err == nil && len(same) > 0 {
			t.Fatalf("%q differs from itself: %v", a, same)
		}
		there, errThere := diffDocuments([]byte(a), []byte(b))
		back, errBack := diffDocuments([]byte(b), []byte(a))
		if errThere == nil && errBack == nil && (len(there) == 0) != (len(back) == 0) {
			t.Fatalf("%q and %q: %v, and back %v", a, b, there, back)
		}
	})
}

func TestDiffLines(t *testing.T) {
	for _, c := range []struct {
		name, want, got string
		diff            []difference
	}{
		{"same", "a b c", "a b c", nil},
		{"edited", "a b c", "a x c", []difference{{":2", "b", "x"}}},
		{"dropped", "a b c", "a c", []difference{{":2", "b", absent}}},
		{"added", "a c", "a b c", []difference{{":2", absent, "b"}}},
		{"twice", "a b", "a b b", []difference{{":3", absent, "b"}}},
		{"order", "a b", "b a", []difference{{":1", "a", "b"}}},
		{"all dropped", "a b", "", []difference{{":1", "a", absent}, {":2", "b", absent}}},
	} {
		if d := cmp.Diff(c.diff, diffLines(strings.Fields(c.want), strings.Fields(c.got))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
