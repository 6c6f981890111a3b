package checks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// nccl-tests since 2.17.3 (2025-10) writes a JSON document beside its table,
// with -J FILE. It is one line without an end, which begins with the version of
// its form, the time, the arguments and the whole environment of rank 0; so it
// is never fetched as it is (jsonOutputInit and sanitizeJson in src/util.cu).

// ncclJSONVersions are the forms that are known: 1 from 2.17.3 on, 2 and 3 from
// 2.19.2 and 2.19.6 on, with times of single iterations.
var ncclJSONVersions = []string{"1", "2", "3"}

// ncclFetch is the sed program (-E, with -n) that prints such a document
// without its time, arguments and environment. It prints only a line that
// begins as the writer begins it, and nothing where it would have to leave an
// environment in: a quote inside of a text is always escaped, so the second
// one could only be a key.
const (
	ncclFetchGuard = `/"env":.*"env":/d`
	ncclFetchTexts = `\[("([^"\\]|\\.)*"(,"([^"\\]|\\.)*")*)?\]`
	ncclFetch      = `s/^\{"version":([0-9]+),"start_time":"[^"\\]*","args":` + ncclFetchTexts + `,"env":` + ncclFetchTexts +
		`,"nccl_version":/{"version":\1,"nccl_version":/p`
)

// ncclDocument is what such a document says.
type ncclDocument struct {
	release     string
	rows        []ncclRow
	outOfBounds float64
	ranks       int // devices that are listed: one a process
	average     ncclNumber
}

// readNcclJSON reads a whole document, fetched or as it was written. Errors
// quote nothing of it.
func readNcclJSON(raw []byte) (ncclDocument, error) {
	var doc ncclDocument
	root, err := parseJSON(raw)
	if err != nil {
		return doc, err
	}
	version, _ := jsonText(lookup(root, "version"))
	if !slices.Contains(ncclJSONVersions, version) {
		return doc, fmt.Errorf("its form has version %q, and %s are known", token(version), strings.Join(ncclJSONVersions, ", "))
	}
	code, missing := jsonNumber(lookup(root, "nccl_version"))
	if missing != "" || code != math.Trunc(code) || code < 1000 || code > 1e9 {
		return doc, errors.New("nccl_version is not there")
	}
	doc.release = ncclRelease(int64(code))
	if devices, ok := listAt(root, "config", "devices"); ok {
		doc.ranks = len(devices)
	}
	results, ok := listAt(root, "results")
	if !ok {
		return doc, errors.New("it has no results")
	}
	for i := range results {
		row, err := readNcclResult(results[i])
		if err != nil {
			return doc, fmt.Errorf("/results/%d: %w", i, err)
		}
		doc.rows = append(doc.rows, row)
	}
	if doc.outOfBounds, missing = jsonNumber(lookup(root, "out_of_bounds", "count")); missing != "" {
		return doc, errors.New("out_of_bounds is not there, so the program did not come to its end")
	}
	average, found := lookup(root, "average_bus_bandwidth", "bandwidth")
	if !found { // 2.17 misspelt it
		average, found = lookup(root, "average_bus_bandwidith", "bandwidith")
	}
	if !found {
		return doc, errors.New("average_bus_bandwidth is not there")
	}
	if doc.average, err = jsonNcclNumber(average); err != nil {
		return doc, fmt.Errorf("average_bus_bandwidth: %w", err)
	}
	if end, missing := jsonText(lookup(root, "end_time")); missing != "" || end == "" {
		return doc, errors.New("end_time is not there, so the program did not come to its end")
	}
	return doc, nil
}

func listAt(root any, tokens ...string) ([]any, bool) {
	value, _ := lookup(root, tokens...)
	list, ok := value.([]any)
	return list, ok
}

func readNcclResult(result any) (ncclRow, error) {
	var row ncclRow
	for _, field := range []struct {
		key  string
		into *uint64
	}{{"size", &row.size}, {"count", &row.count}} {
		text, missing := jsonText(lookup(result, field.key))
		n, err := strconv.ParseUint(text, 10, 64)
		if missing != "" || err != nil {
			return row, fmt.Errorf("%s is not a number", field.key)
		}
		*field.into = n
	}
	for _, field := range []struct {
		key  string
		into *string
	}{{"type", &row.dtype}, {"redop", &row.op}, {"root", &row.root}} {
		text, missing := jsonText(lookup(result, field.key))
		if missing != "" {
			return row, fmt.Errorf("%s is not there", field.key)
		}
		*field.into = strings.TrimSpace(text) // root is padded
	}
	for place, key := range [...]string{"out_of_place", "in_place"} {
		half, err := readNcclResultHalf(lookup(result, key))
		if err != nil {
			return row, fmt.Errorf("%s: %w", key, err)
		}
		for _, of := range []struct {
			key  string
			into *ncclNumber
		}{{"p99_us", &half.p99}, {"cv_pct", &half.cv}} {
			if value, found := lookup(result, key+"_per_iter", of.key); found {
				if *of.into, err = jsonNcclNumber(value); err != nil {
					return row, fmt.Errorf("%s_per_iter/%s: %w", key, of.key, err)
				}
			}
		}
		row.halves[place] = half
	}
	return row, nil
}

func readNcclResultHalf(value any, found bool) (ncclHalf, error) {
	var half ncclHalf
	if !found {
		return half, errors.New("it is not there")
	}
	if value == nil {
		half.blank = true
		return half, nil
	}
	times, timed := lookup(value, "time")
	if !timed {
		times, timed = lookup(value, "cpu_time")
	}
	if !timed {
		return half, errors.New("it has no time")
	}
	for _, field := range []struct {
		key  string
		from any
		into *ncclNumber
	}{{"alg_bw", nil, &half.algbw}, {"bus_bw", nil, &half.busbw}, {"nwrong", nil, &half.wrong}, {"time", times, &half.time}} {
		from := field.from
		if from == nil {
			var found bool
			if from, found = lookup(value, field.key); !found {
				return half, fmt.Errorf("%s is not there", field.key)
			}
		}
		n, err := jsonNcclNumber(from)
		if err != nil {
			return half, fmt.Errorf("%s: %w", field.key, err)
		}
		*field.into = n
	}
	return half, nil
}

// jsonNcclNumber is a number of the document: with six decimals, null where the
// data was not checked, and "nan" for what is not a number.
func jsonNcclNumber(value any) (ncclNumber, error) {
	number, missing := jsonNumber(value, true)
	switch {
	case missing == "null", ncclNotNumber.MatchString(missing):
		return ncclNumber{text: missing, missing: missing}, nil
	case missing != "":
		return ncclNumber{}, errors.New("it is not a number")
	case number < 0:
		return ncclNumber{}, errors.New("it is negative")
	}
	return ncclNumber{text: strconv.FormatFloat(number, 'f', -1, 64), value: number, half: 0.5e-6}, nil
}

// difference says where the document and the table say something else, or
// nothing. They are printed from the same variables.
func (d ncclDocument) difference(t ncclTable) string {
	if len(d.rows) != len(t.rows) {
		return fmt.Sprintf("the JSON document has %d results, and the table %d rows", len(d.rows), len(t.rows))
	}
	if t.release != "" && t.release != d.release {
		return fmt.Sprintf("the JSON document says NCCL %s, and the output %s", d.release, t.release)
	}
	for i, row := range t.rows {
		other := d.rows[i]
		if row.size != other.size || row.count != other.count || row.dtype != other.dtype || row.op != other.op || row.root != other.root {
			return fmt.Sprintf("result %d of the JSON document is of another size, type or operation than row %d of the table", i, i+1)
		}
		for place, half := range row.halves {
			twin := other.halves[place]
			pairs := [][2]ncclNumber{{half.time, twin.time}, {half.algbw, twin.algbw}, {half.busbw, twin.busbw}, {half.wrong, twin.wrong}}
			if half.p99.text != "" || twin.p99.text != "" {
				pairs = append(pairs, [2]ncclNumber{half.p99, twin.p99}, [2]ncclNumber{half.cv, twin.cv})
			}
			for _, pair := range pairs {
				if half.blank != twin.blank || (pair[0].missing == "") != (pair[1].missing == "") ||
					apart(pair[0].value, pair[1].value, pair[0].half+pair[1].half) {
					return fmt.Sprintf("%d bytes, %s of place: the JSON document says %q where the table says %q", row.size, ncclPlaces[place], pair[1].text, pair[0].text)
				}
			}
		}
	}
	if t.outOfBounds != nil && t.outOfBounds.value.value != d.outOfBounds {
		return fmt.Sprintf("the JSON document counts %g wrong results, and the output %s", d.outOfBounds, t.outOfBounds.value.text)
	}
	if t.average != nil && ((t.average.value.missing == "") != (d.average.missing == "") || apart(t.average.value.value, d.average.value, t.average.value.half+d.average.half)) {
		return fmt.Sprintf("the JSON document says %q for the average, and the output %q", d.average.text, t.average.value.text)
	}
	return ""
}
