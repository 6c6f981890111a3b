package nodeset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func groups(name string) ([]string, bool) {
	switch name {
	case "rack=A3":
		return []string{"gpu003", "gpu001"}, true
	case "none":
		return nil, true
	case "bad":
		return []string{"gpu 1"}, true
	}
	return nil, false
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"n1", "n1"},
		{"n1,n2,n1", "n1 n2"},
		{" n1 ,\tn2 ", "n1 n2"},
		{"n[1-3]", "n1 n2 n3"},
		{"n[3,1]", "n3 n1"},
		{"n[08-11]", "n08 n09 n10 n11"},
		{"n[98-101]", "n98 n99 n100 n101"},
		{"n[08-100/46]", "n08 n54 n100"},
		{"n[1-9/2]", "n1 n3 n5 n7 n9"},
		{"n[1-2]x[01-02]y", "n1x01y n1x02y n2x01y n2x02y"},
		{"[1-2]", "1 2"},
		{"r[1-2][7,9]", "r17 r19 r27 r29"},
		{"n[1,01,001]", "n1 n01 n001"},
		{"n[1-4]!n2", "n1 n3 n4"},
		{"n[1-4]&n[3-9]", "n3 n4"},
		{"n[1-4]!n2,n2", "n1 n3 n4 n2"},
		{"n[1-4]!n2&n[2-3],n9", "n3 n9"},
		{"@rack=A3", "gpu003 gpu001"},
		{"gpu[001-004]&@rack=A3", "gpu001 gpu003"},
		{"n1,@none", "n1"},
		{"n1!@none", "n1"},
		{"a.b-c_d", "a.b-c_d"},
		{"n[0-0]", "n0"},
		{"n[00-01]", "n00 n01"},
		{"n[999999999999999999]", "n999999999999999999"},
	} {
		got, err := Parse(c.text, groups)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)
		} else if strings.Join(got, " ") != c.want {
			t.Errorf("Parse(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, at, summary string }{ // at: what Offset and Length cover
		{"", "", "Empty node set"},
		{"  ", "  ", "Empty node set"},
		{"n1!n1", "n1!n1", "Empty node set"},
		{"n1&n2", "n1&n2", "Empty node set"},
		{"@none", "@none", "Empty node set"},
		{"gpu[017-032", "[017-032", "Unclosed bracket"},
		{"gpu[", "[", "Unclosed bracket"},
		{"gpu[1-2[3]", "[1-2", "Unclosed bracket"},
		{"gpu[1-2,gpu[3]", "[1-2", "Unclosed bracket"},
		{"gpu1]", "]", "Unopened bracket"},
		{"gpu[1]]", "]", "Unopened bracket"},
		{"gpu[]", "]", "Missing number"},
		{"gpu[1,]", "]", "Missing number"},
		{"gpu[-3]", "-", "Missing number"},
		{"gpu[3-]", "]", "Missing number"},
		{"gpu[1-2-3]", "-", "Character not allowed in a range"},
		{"gpu[1 ]", " ", "Character not allowed in a range"},
		{"gpu[1-2é]", "é", "Character not allowed in a range"},
		{"gpu[5/2]", "/", "Step without a range"},
		{"gpu[9-1]", "9-1", "Reversed range"},
		{"gpu[8-010]", "8-010", "Mixed padding"},
		{"gpu[008-10]", "008-10", "Mixed padding"},
		{"gpu[08-9]", "08-9", "Mixed padding"},
		{"gpu[1-9/0]", "/0", "Step of zero"},
		{"gpu[1-9/]", "]", "Missing number"},
		{"gpu[1-9999999999999999999]", "9999999999999999999", "Number too long"},
		{"gpu[0-65536]", "gpu[0-65536]", "Too many names"},
		{"n1,a[0-255]b[0-256]", "a[0-255]b[0-256]", "Too many names"},
		{"a[0-999999999999999999]b[0-999999999999999999]c[0-999999999999999999]", "a[0-999999999999999999]b[0-999999999999999999]c[0-999999999999999999]", "Too many names"},
		{"a[1-65536],b1", "a[1-65536],b1", "Too many names"},
		{strings.Repeat("a[1-65536],", 5) + "a1", strings.Repeat("a[1-65536],", 5) + "a1", "Too many names"},
		{",n1", ",", "Missing name"},
		{"n1,,n2", ",", "Missing name"},
		{"n1,", ",", "Missing name"},
		{"n1 & ", "&", "Missing name"},
		{"n1 n2", "n", "Missing operator"},
		{"n1 [2]", "[", "Missing operator"},
		{"n1^n2", "^", "Character not allowed in a name"},
		{"nö", "ö", "Character not allowed in a name"},
		{"n\xff", "\xff", "Character not allowed in a name"},
		{"n/1", "/", "Character not allowed in a name"},
		{"n\n", "\n", "Character not allowed in a name"},
		{"-oProxyCommand", "-", "Name begins with a sign"},
		{"..", ".", "Name begins with a sign"},
		{"n1@rack=A3", "@", "Group inside a name"},
		{"@", "@", "Missing group name"},
		{"@rack=B1", "@rack=B1", "Unknown group"},
		{"n1,@bad", "@bad", "Group with a bad name"},
		{strings.Repeat("a", 256), strings.Repeat("a", 256), "Name too long"},
		{strings.Repeat("[1]", 256), strings.Repeat("[1]", 256), "Name too long"},
	} {
		_, err := Parse(c.text, groups)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%.60q): error %v, want %q", c.text, err, c.summary)
			continue
		}
		if e.Summary != c.summary {
			t.Errorf("Parse(%.60q): %q, want %q", c.text, e.Summary, c.summary)
		}
		if e.Offset < 0 || e.Offset+e.Length > len(c.text) || c.text[e.Offset:e.Offset+e.Length] != c.at {
			t.Errorf("Parse(%.60q): points at byte %d, length %d; want %.60q", c.text, e.Offset, e.Length, c.at)
		}
		if !strings.HasSuffix(e.Detail, ".") || !strings.Contains(e.Error(), fmt.Sprintf("at byte %d", e.Offset+1)) {
			t.Errorf("Parse(%.60q): message %q", c.text, e.Error())
		}
	}
}

func TestParseWithoutGroups(t *testing.T) {
	_, err := Parse("@all", nil)
	var e *Error
	if !errors.As(err, &e) || e.Summary != "Group not allowed" {
		t.Errorf("error = %v", err)
	}
}

func TestFold(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"", ""},
		{"n1", "n1"},
		{"n1 n1", "n1"},
		{"n2 n1", "n[1-2]"},
		{"n1 n3 n2 n7", "n[1-3,7]"},
		{"n9 n10 n11", "n[9-11]"},
		{"n08 n09 n10", "n[08-10]"},
		{"n99 n100 n098", "n[098,100],n99"},
		{"n1 n01 n2 n02", "n[1-2],n[01-02]"},
		{"n5 n01 n10 n11", "n[01,10-11],n5"},
		{"n001 n01 n100 n10", "n[01,10],n[001,100]"},
		{"login gpu01 gpu02", "gpu[01-02],login"},
		{"r1n1 r1n2 r2n1 r2n2", "r[1-2]n[1-2]"},
		{"r1n1 r1n2 r2n1", "r1n[1-2],r2n1"},
		{"n1-ib n2-ib n1", "n1,n[1-2]-ib"},
		{"a123456789012345678901 a123456789012345678902", "a123456789012345678901,a123456789012345678902"},
		{"10 9", "[9-10]"},
		{"gpu10 gpu9 gpu100 cpu1", "cpu1,gpu[9-10,100]"},
	} {
		got := Fold(strings.Fields(c.names))
		if want := c.want; got != want {
			t.Errorf("Fold(%s) = %s, want %s", c.names, got, want)
		}
	}
	full := make([]string, MaxNames)
	for i := range full {
		full[i] = fmt.Sprintf("n%05d", i)
	}
	if got := Fold(full); got != "n[00000-65535]" {
		t.Errorf("Fold of the largest set = %.80s", got)
	}
}

func TestFoldIsInverseOfParse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	literals := []string{"n", "gpu", "-", ".x", "_", "r"}
	for range 2000 {
		var names []string
		for range 1 + random.IntN(40) {
			name := literals[random.IntN(2)]
			for range random.IntN(3) {
				name += fmt.Sprintf("%0*d", 1+random.IntN(3), random.IntN(14)) + literals[random.IntN(len(literals))]
			}
			if random.IntN(2) == 0 {
				name += fmt.Sprintf("%0*d", 1+random.IntN(3), random.IntN(120))
			}
			names = append(names, name)
		}
		checkInverse(t, names)
	}
}

func checkInverse(t *testing.T, names []string) {
	t.Helper()
	folded := Fold(names)
	got, err := Parse(folded, nil)
	if err != nil {
		t.Fatalf("Fold(%q) = %q: %v", names, folded, err)
	}
	want := slices.Clone(names)
	slices.SortFunc(want, Compare)
	want = slices.Compact(want)
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, want) {
		t.Fatalf("Fold(%q) = %q, which is %q", names, folded, got)
	}
	shuffled := slices.Clone(names)
	slices.Reverse(shuffled)
	if again := Fold(shuffled); again != folded {
		t.Fatalf("Fold depends on order: %q and %q", folded, again)
	}
}

func TestCompare(t *testing.T) {
	ordered := []string{"10", "a", "a-1", "a1", "a01", "a1b", "a2", "a9", "a10", "a010", "a10b", "a99999999999999999999", "a100000000000000000000", "aa", "b"}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := Compare(a, b); got != want {
				t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"n1": true, "_x": true, "9": true, "a.b": true,
		"": false, "-v": false, ".": false, "a b": false, "a/b": false, "ä": false, "a\x00": false,
		strings.Repeat("a", 255): true, strings.Repeat("a", 256): false,
	} {
		if err := checkName(name); (err == nil) != good {
			t.Errorf("checkName(%.20q) = %v", name, err)
		}
	}
}

func FuzzNodeset(f *testing.F) {
	for _, seed := range []string{
		"gpu[001-032]", "n[1-9/2]!n3", "a&b,c", "@g", "@g!n1", "r[1-2]n[01-02]", "[", "n[1,01]", "gpu[017-032", "a[0-999999999999999999]b[0-9]", "n[08-100]", " a , b ",
	} {
		f.Add(seed)
	}
	known := func(name string) ([]string, bool) { return []string{"n1", "n2"}, name == "g" }
	f.Fuzz(func(t *testing.T, text string) {
		names, err := Parse(text, known)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error of type %T", err)
			}
			if e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) {
				t.Fatalf("%q: error points outside of the text: %d+%d", text, e.Offset, e.Length)
			}
			return
		}
		if len(names) == 0 || len(names) > MaxNames {
			t.Fatalf("%q: %d names", text, len(names))
		}
		for _, n := range names {
			if err := checkName(n); err != nil {
				t.Fatalf("%q gives the name %q: %v", text, n, err)
			}
		}
		checkInverse(t, names)
	})
}
