package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// A difference is one place where two JSON values are not the same. Want and
// Got are JSON text, or "absent".
type difference struct{ Path, Want, Got string }

const absent = "absent"

// maxDifferences bounds what one comparison lists.
const maxDifferences = 100

// diffDocuments compares two JSON documents by value and names the places
// where they differ, in document order.
func diffDocuments(want, got []byte) ([]difference, error) {
	// The usual case, and for a large run the one that spares trees of
	// millions of values.
	if bytes.Equal(want, got) && json.Valid(want) {
		return nil, nil
	}
	var values [2]any
	for i, doc := range [][]byte{want, got} {
		decoder := json.NewDecoder(bytes.NewReader(doc))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			return nil, err
		}
	}
	d := differ{}
	d.compare("", values[0], values[1])
	return d.found, nil
}

// diffValues compares two values by the documents that they are written as.
func diffValues(want, got any) ([]difference, error) {
	wantDoc, err := evidence.EncodeLine(want)
	if err != nil {
		return nil, err
	}
	gotDoc, err := evidence.EncodeLine(got)
	if err != nil {
		return nil, err
	}
	return diffDocuments(wantDoc, gotDoc)
}

type differ struct{ found []difference }

func (d *differ) add(path string, want, got any) {
	if len(d.found) < maxDifferences {
		d.found = append(d.found, difference{Path: path, Want: jsonText(want), Got: jsonText(got)})
	}
}

func (d *differ) compare(path string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			d.compareObjects(path, w, g)
			return
		}
	case []any:
		if g, ok := got.([]any); ok {
			d.compareLists(path, w, g)
			return
		}
	case json.Number:
		if g, ok := got.(json.Number); ok && sameNumber(w, g) {
			return
		}
	default:
		if want == got {
			return
		}
	}
	d.add(path, want, got)
}

// sameNumber compares numbers by value, so that 1.5 and 1.50 are the same.
// Whole numbers are compared digit by digit: a float64 cannot tell large ones
// apart.
func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a.String()+b.String(), ".eE") {
		return false
	}
	x, err := a.Float64()
	if err != nil {
		return false
	}
	y, err := b.Float64()
	return err == nil && x == y
}

// missing marks a member or an element that one side does not have.
type missing struct{}

func (d *differ) compareObjects(path string, want, got map[string]any) {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		w, inWant := want[name]
		g, inGot := got[name]
		at := name
		if path != "" {
			at = path + "." + name
		}
		switch {
		case inWant && inGot:
			d.compare(at, w, g)
		case inWant:
			d.add(at, w, missing{})
		default:
			d.add(at, missing{}, g)
		}
	}
}

// identities are the members that name an element of a list, the first tuple
// that fits being used, so that an element that was taken out is reported as
// one difference and not as a shift of all that follow.
var identities = [][]string{
	{"id"}, {"name"}, {"test", "threshold", "subject"}, {"cell", "attempt"}, {"cell"},
	{"phase"}, {"release"}, {"path"}, {"test"}, {"node"},
}

func (d *differ) compareLists(path string, want, got []any) {
	wantKeys, gotKeys := keys(want, got)
	if wantKeys == nil {
		for i := range max(len(want), len(got)) {
			at := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case i >= len(got):
				d.add(at, want[i], missing{})
			case i >= len(want):
				d.add(at, missing{}, got[i])
			default:
				d.compare(at, want[i], got[i])
			}
		}
		return
	}
	place := make(map[string]int, len(gotKeys))
	for i, key := range gotKeys {
		place[key] = i
	}
	inWant := make(map[string]bool, len(wantKeys))
	var order []string
	for i, key := range wantKeys {
		inWant[key] = true
		j, ok := place[key]
		if !ok {
			d.add(path+"["+key+"]", want[i], missing{})
			continue
		}
		order = append(order, key)
		d.compare(path+"["+key+"]", want[i], got[j])
	}
	var common []string
	for i, key := range gotKeys {
		if inWant[key] {
			common = append(common, key)
			continue
		}
		d.add(path+"["+key+"]", missing{}, got[i])
	}
	if !slices.Equal(order, common) {
		d.add(path+" (order)", strings.Join(order, " "), strings.Join(common, " "))
	}
}

// keys names the elements of both lists by the first identity that all of
// them have and that is unique in each, or returns nil.
func keys(want, got []any) (wantKeys, gotKeys []string) {
	for _, identity := range identities {
		w, ok := keysBy(identity, want)
		if !ok {
			continue
		}
		if g, ok := keysBy(identity, got); ok {
			return w, g
		}
	}
	return nil, nil
}

func keysBy(identity []string, list []any) ([]string, bool) {
	found := make([]string, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, element := range list {
		object, ok := element.(map[string]any)
		if !ok {
			return nil, false
		}
		var parts []string
		for _, member := range identity {
			switch v := object[member].(type) {
			case string:
				parts = append(parts, strconv.Quote(v))
			case json.Number:
				parts = append(parts, v.String())
			default:
				return nil, false
			}
		}
		key := strings.Join(parts, " ")
		if seen[key] {
			return nil, false
		}
		seen[key] = true
		found = append(found, key)
	}
	return found, true
}

// maxShown bounds the JSON text of one side of a difference.
const maxShown = 400

func jsonText(v any) string {
	if _, ok := v.(missing); ok {
		return absent
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return shorten(string(text))
}

func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}
