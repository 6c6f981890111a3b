package evidence

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentsAreWrittenAgainAsTheyWere: whatever a server said in its last
// words, the attempt is not damaged by it.
func TestDocumentsAreWrittenAgainAsTheyWere(t *testing.T) {
	s := newRun(t)
	cell := s.Plan().Cells[0]
	a := beginCell(t, s, cell, "n1")
	step, err := a.Step("df", "n1")
	if err != nil {
		t.Fatal(err)
	}
	exit := exitOK()
	exit.Class, exit.Code, exit.Detail = ClassLost, nil, "bye \xff"
	if err := step.Close(exit); err != nil {
		t.Fatal(err)
	}
	done, err := s.End(a, []Problem{{Node: "n1", Class: ClassLost, Detail: "bye \xff"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := done.Problems[0].Detail; got != "bye \uFFFD" {
		t.Errorf("detail is %q", got)
	}
	if found := problems(Results(s.Plan(), s.Records(), s.FS())[:1]); len(found) > 0 {
		t.Errorf("problems: %q", found)
	}
}

// TestNewFieldsMayBeAbsent: an exit.json or attempt.json must be the bytes that
// we write for it, so a field that an older build does not write must be one
// that is left out where it is empty.
func TestNewFieldsMayBeAbsent(t *testing.T) {
	want := map[string]string{
		"Attempt": "mediaType minor cell test nodes repetition number start end steps files",
		"Step":    "dir step node class",
		"File":    "path size digest",
		"Exit":    "argv class start end stdoutBytes stderrBytes",
		"Problem": "class detail",
	}
	got := make(map[string]string)
	for _, v := range []any{Attempt{}, Step{}, File{}, Exit{}, Problem{}} {
		typ := reflect.TypeOf(v)
		var always []string
		for i := range typ.NumField() {
			name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(options, "omit") {
				always = append(always, name)
			}
		}
		got[typ.Name()] = strings.Join(always, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields that are always written (-want +got):\n%s", diff)
	}
}
