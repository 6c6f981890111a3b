package evidence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPathName(t *testing.T) {
	long := strings.Repeat("a", 100)
	for name, want := range map[string]string{
		"gpu001":               "gpu001",
		"n1.rack-2_b":          "n1.rack-2_b",
		"-x":                   "-x",
		long:                   long,
		"":                     "x-e3b0c442",
		"N1":                   "n1-" + hash8("N1"),
		"..":                   "x-" + hash8(".."),
		".":                    "x-" + hash8("."),
		".hidden":              "hidden-" + hash8(".hidden"),
		"end.":                 "end-" + hash8("end."),
		"a/b":                  "a-b-" + hash8("a/b"),
		"a\x00b":               "a-b-" + hash8("a\x00b"),
		"ä":                    "x-" + hash8("ä"),
		"K":                    "k-" + hash8("K"), // the Kelvin sign is k in lower case
		"con":                  "x-con-" + hash8("con"),
		"CON":                  "x-con-" + hash8("CON"),
		"nul.txt":              "x-nul.txt-" + hash8("nul.txt"),
		"com1":                 "x-com1-" + hash8("com1"),
		"lpt9.a.b":             "x-lpt9.a.b-" + hash8("lpt9.a.b"),
		"com":                  "com",
		"com10":                "com10",
		"console":              "console",
		"con." + long:          ("x-con." + long)[:91] + "-" + hash8("con."+long),
		long + "b":             long[:91] + "-" + hash8(long+"b"),
		strings.Repeat(".", 9): "x-" + hash8(strings.Repeat(".", 9)),
	} {
		got := PathName(name)
		if got != want {
			t.Errorf("PathName(%.20q) = %q, want %q", name, got, want)
		}
		if err := ValidPath(got); err != nil {
			t.Errorf("PathName(%.20q): %v", name, err)
		}
		if again := PathName(got); again != got {
			t.Errorf("PathName(%q) = %q, want itself", got, again)
		}
	}
}

func TestPathNamesDoNotCollide(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"n1", "N1", "n01", "n1 ", " n1", "n-1", "n/1", "n\\1", "n:1", "n1.", ".n1", "Ñ1", "ñ1", "con", "Con", "CON", "x-con"} {
		got := PathName(name)
		if other, found := seen[got]; found {
			t.Errorf("%q and %q are both %q", other, name, got)
		}
		seen[got] = name
	}
}

func TestValidPath(t *testing.T) {
	seg := strings.Repeat("s", 100)
	for _, p := range []string{"a", "a/b/c/d/e/f/g/h", seg, strings.Repeat("s", 50) + "/" + seg, "run/journal.jsonl", strings.Repeat("s", 77) + "/" + strings.Repeat("s", 77) + "/" + seg} {
		if err := ValidPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for p, want := range map[string]string{
		"": "empty", "/a": "empty", "a/": "empty", "a//b": "empty", ".": "dot", "a/../b": "dot", "./a": "dot", "..": "dot",
		"A": "not one of", "a b": "not one of", "a\\b": "not one of", "c:a": "not one of", "a\x00": "not one of", "\xff": "not one of", "ä": "not one of",
		"a/b/c/d/e/f/g/h/i": "more than 8", seg + "s": "longer than 100", "a/con/b": "device", "aux.json": "device",
		seg + "/" + seg + "/a": "tar header",
		strings.Repeat("s", 78) + "/" + strings.Repeat("s", 78) + "/" + seg: "tar header",
	} {
		if err := ValidPath(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", p, err, want)
		}
	}
	if err := BundlePath(SumsPath); err != nil {
		t.Error(err)
	}
	for p, want := range map[string]bool{
		"manifest.json": true, "SHA256SUMS": true, "evidence.sigstore.json": true, "approvals/01-ops.sigstore.json": true,
		"approvals/x.json": false, "approvals/.sigstore.json": false, "approvals/a/b.sigstore.json": false, "run/manifest.json": false, "approvals": false, "x/evidence.sigstore.json": false,
	} {
		if Unlisted(p) != want {
			t.Errorf("Unlisted(%q) = %v", p, !want)
		}
	}
}

func TestCellID(t *testing.T) {
	long := strings.Repeat("n", 200)
	for _, tc := range []struct {
		test  string
		nodes []string
		rep   int
		want  string
	}{
		{"disk", []string{"gpu001"}, 1, "disk/gpu001.r1"},
		{"disk", []string{"gpu001"}, 12, "disk/gpu001.r12"},
		{"disk", []string{"n1", "n2", "n3"}, 1, "disk/set-" + hash8("n[1-3]") + ".r1"},
		{"disk", []string{"n3", "n1", "n2"}, 1, "disk/set-" + hash8("n[1-3]") + ".r1"},
		{"Disk", []string{"N1"}, 1, "disk-" + hash8("Disk") + "/n1-" + hash8("N1") + ".r1"},
		{long, []string{long}, 1, long[:55] + "-" + hash8(long) + "/" + long[:63] + "-" + hash8(long) + ".r1"},
	} {
		got := CellID(tc.test, tc.nodes, tc.rep)
		if got != tc.want {
			t.Errorf("CellID(%.10q, %.10q, %d) = %q, want %q", tc.test, tc.nodes, tc.rep, got, tc.want)
		}
		// The longest path of an attempt must fit a tar header.
		for _, file := range []string{"attempt.json", "raw/" + StepDir(long, long) + "/exit.json", "raw/" + PathName(long)} {
			if err := ValidPath(AttemptPath(got, 9999) + "/" + file); err != nil {
				t.Error(err)
			}
		}
	}
	if got, want := StepDir("fio", "n1.example"), "fio.n1.example"; got != want {
		t.Errorf("StepDir = %q, want %q", got, want)
	}
	if got, want := SourcePath("Sub Dir/main.hcl"), "sub-dir-"+hash8("Sub Dir")+"/main.hcl"; got != want {
		t.Errorf("SourcePath = %q, want %q", got, want)
	}
}

func TestSubjects(t *testing.T) {
	for _, tc := range []struct {
		patterns []string
		want     []Subject
	}{
		{[]string{"fleet"}, []Subject{"fleet"}},
		{[]string{"n[1-2]/gpu[0-1]"}, []Subject{"n1/gpu0", "n1/gpu1", "n2/gpu0", "n2/gpu1"}},
		{[]string{"n1/mlx5_0/n2", "n[1-2]"}, []Subject{"n1/mlx5_0/n2", "n1", "n2"}},
		{[]string{"n1", "n[1-2]"}, []Subject{"n1", "n2"}},
		{nil, nil},
	} {
		got, err := ExpandSubjects(tc.patterns)
		if err != nil {
			t.Errorf("%q: %v", tc.patterns, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.patterns, diff)
		}
	}
	for pattern, want := range map[string]string{
		"n[1-": "n[1-", "": "subject", "n1//x": "subject", "n1!n1": "No name is left",
		"n[1-60000]/gpu[0-99]": "more than 4194304",
	} {
		if got, err := ExpandSubjects([]string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d subjects, %v, want %q", pattern, len(got), err, want)
		}
	}
}

func TestFoldSubjectsIsCompact(t *testing.T) {
	var regular []Subject
	for n := range 32 {
		for g := range 8 {
			regular = append(regular, Subject(fmt.Sprintf("gpu%03d/gpu%d", n+1, g)))
		}
	}
	if got := FoldSubjects(regular); !slices.Equal(got, []string{"gpu[001-032]/gpu[0-7]"}) {
		t.Errorf("a regular fleet folds to %q", got)
	}
	without := slices.Delete(slices.Clone(regular), 83, 84) // gpu011/gpu3
	if got := FoldSubjects(without); !slices.Equal(got, []string{"gpu011/gpu[0-2,4-7]", "gpu[001-010,012-032]/gpu[0-7]"}) {
		t.Errorf("a fleet without one part folds to %q", got)
	}
}

func TestFoldSubjectsIsInverse(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"n1", "n2", "n01", "n10", "a", "b-1", "b-2", "x_1"}
	for range 500 {
		set := map[Subject]bool{}
		for range random.IntN(40) {
			parts := make([]string, 1+random.IntN(3))
			for i := range parts {
				parts[i] = names[random.IntN(len(names))]
			}
			set[Subject(strings.Join(parts, "/"))] = true
		}
		subjects := slices.Sorted(maps.Keys(set))
		folded := FoldSubjects(subjects)
		random.Shuffle(len(subjects), func(i, j int) { subjects[i], subjects[j] = subjects[j], subjects[i] })
		if again := FoldSubjects(append(subjects, subjects...)); !slices.Equal(again, folded) {
			t.Fatalf("the order counts: %q and %q", folded, again)
		}
		back, err := ExpandSubjects(folded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(set)), slices.Sorted(slices.Values(back))); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", folded, diff)
		}
	}
}
