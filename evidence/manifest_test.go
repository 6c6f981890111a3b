package evidence

import (
	"maps"
	"strings"
	"testing"
)

const (
	sumA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sumB = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	salt = "00112233445566778899aabbccddeeff"
)

func smallManifest(t testing.TB) string {
	t.Helper()
	content, err := encodeManifest(Manifest{MediaType: MediaManifest, Minor: Minor, Files: []ManifestEntry{
		{Path: "cells/a/b.r1/1/raw/x.n1/stdout", Size: 3, SHA256: sumA, Role: "raw-stdout", Node: "N1", Salt: salt},
		{Path: "run/plan.json", Size: 0, SHA256: sumB, Role: "plan", Salt: salt},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestManifestRefuses(t *testing.T) {
	good := smallManifest(t)
	if m, leaves, err := ReadManifest([]byte(good)); err != nil || len(m.Files) != 2 || len(leaves) != 2 {
		t.Fatalf("a good one: %v", err)
	}
	if _, _, err := ReadManifest([]byte(`{"mediaType":"` + MediaManifest + `","minor":0,"files":[` + "\n]}\n")); err != nil {
		t.Errorf("one without files: %v", err)
	}
	lines := strings.SplitAfter(good, "\n")
	for name, tc := range map[string]struct{ text, want string }{
		"empty":             {"", "starts with \"mediaType\""},
		"cut":               {good[:len(good)-3], "ends too early"},
		"cut at a line":     {lines[0] + lines[1], "ends too early"},
		"trailing":          {good + "x", "data after the manifest"},
		"trailing line":     {good + "\n", "data after the manifest"},
		"order":             {lines[0] + strings.TrimSuffix(lines[2], "\n") + ",\n" + strings.TrimSuffix(lines[1], ",\n") + "\n" + lines[3], "does not come after"},
		"twice":             {lines[0] + lines[1] + lines[1] + lines[2] + lines[3], "does not come after"},
		"no comma":          {strings.Replace(good, "},\n", "}\n", 1), "after an entry without a comma"},
		"extra comma":       {strings.Replace(good, "}\n]}", "},\n]}", 1), "missing after the comma"},
		"one line":          {strings.ReplaceAll(good, "\n", ""), "data after the document"},
		"media":             {strings.Replace(good, "manifest.v1", "manifest.v2", 1), "another major version"},
		"path":              {strings.Replace(good, "run/plan", "run/../plan", 1), "dot"},
		"path itself":       {strings.Replace(good, "run/plan.json", "manifest.json", 1), "cannot be in a manifest"},
		"path sums":         {strings.Replace(good, "run/plan.json", "SHA256SUMS", 1), "cannot be in a manifest"},
		"path approval":     {strings.Replace(strings.Replace(good, "run/plan.json", "x", 1), "cells/a/b.r1/1/raw/x.n1/stdout", "approvals/a.sigstore.json", 1), "cannot be in a manifest"},
		"size":              {strings.Replace(good, `"size":3`, `"size":-3`, 1), "size is -3"},
		"size float":        {strings.Replace(good, `"size":3`, `"size":3.5`, 1), "cannot be a int64"},
		"size exponent":     {strings.Replace(good, `"size":3`, `"size":3e0`, 1), "cannot be a int64"},
		"upper hex":         {strings.Replace(good, sumA, strings.ToUpper(sumA), 1), "64 lower-case hex"},
		"short hex":         {strings.Replace(good, sumA, sumA[1:], 1), "64 lower-case hex"},
		"no salt":           {strings.Replace(good, salt, "", 1), "salt"},
		"spaces":            {strings.Replace(good, `"size":3`, `"size": 3`, 1), "not spelled"},
		"field order":       {strings.Replace(good, `"size":3,"sha256":"`+sumA+`"`, `"sha256":"`+sumA+`","size":3`, 1), "not spelled"},
		"unknown field":     {strings.Replace(good, `"size":3`, `"size":3,"mode":7`, 1), `unknown field "mode"`},
		"doubled field":     {strings.Replace(good, `"size":3`, `"size":3,"size":3`, 1), "twice"},
		"carriage return":   {strings.ReplaceAll(good, "\n", "\r\n"), "want"},
		"files in the head": {strings.Replace(good, `"files":[`, `"files":[{},`, 1), "want"},
	} {
		m, leaves, err := ReadManifest([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if m.Files != nil || leaves != nil {
			t.Errorf("%s: entries beside an error", name)
		}
	}
}

func TestManifestOfANewerMinor(t *testing.T) {
	text := strings.Replace(smallManifest(t), `"minor":0`, `"minor":1`, 1)
	text = strings.Replace(text, `"size":3`, `"size":3,"mode":7`, 1)
	m, leaves, err := ReadManifest([]byte(text))
	if err != nil || len(m.Files) != 2 || !strings.Contains(string(leaves[0]), `"mode":7`) {
		t.Errorf("%v, %d files", err, len(m.Files))
	}
}

func TestReadSums(t *testing.T) {
	good := sumA + "  cells/a\n" + sumB + "  run/b\n"
	sums, err := ReadSums([]byte(good))
	if err != nil || !maps.Equal(sums, map[string]string{"cells/a": sumA, "run/b": sumB}) {
		t.Errorf("%v, %v", sums, err)
	}
	if sums, err := ReadSums(nil); err != nil || len(sums) != 0 {
		t.Errorf("an empty list: %v, %v", sums, err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"cut":       {good[:len(good)-1], "line 2: the line has no end"},
		"order":     {sumB + "  run/b\n" + sumA + "  cells/a\n", "line 2: cells/a does not come after run/b"},
		"twice":     {good + sumB + "  run/b\n", "line 3: run/b does not come after run/b"},
		"binary":    {sumA + " *cells/a\n", "two spaces"},
		"escaped":   {`\` + good, "64 lower-case hex"},
		"upper":     {strings.ToUpper(sumA) + "  cells/a\n", "64 lower-case hex"},
		"path":      {sumA + "  ../a\n", "dot"},
		"absolute":  {sumA + "  /a\n", "empty"},
		"itself":    {sumA + "  SHA256SUMS\n", "not one of"},
		"manifest":  {sumA + "  manifest.json\n", "cannot be in the list"},
		"blank":     {good + "\n", "line 3"},
		"crlf":      {sumA + "  a\r\n", "not one of"},
		"backslash": {sumA + "  a\\b\n", "not one of"},
	} {
		if _, err := ReadSums([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(smallManifest(f)))
	f.Add([]byte(`{"mediaType":"` + MediaManifest + `","minor":9,"files":[` + "\n]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, leaves, err := ReadManifest(data)
		if err != nil || m.Minor > Minor {
			return
		}
		if len(leaves) != len(m.Files) {
			t.Fatalf("%d leaves for %d files", len(leaves), len(m.Files))
		}
		again, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadManifest(again); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

func FuzzReadSums(f *testing.F) {
	f.Add([]byte(sumA + "  cells/a\n" + sumB + "  run/b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := ReadSums(data)
		if err != nil {
			return
		}
		m := Manifest{}
		for p, sum := range sums {
			if ValidPath(p) != nil || !isHex(sum, 64) {
				t.Fatalf("%q %q", p, sum)
			}
			m.Files = append(m.Files, ManifestEntry{Path: p, SHA256: sum})
		}
		if total := len(encodeSums(m)); total != len(data) {
			t.Fatalf("%d bytes stand for %d", len(data), total)
		}
	})
}
