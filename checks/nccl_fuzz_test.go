package checks

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzNcclTable: whatever is taken for a result has its header, its rows and
// its end in the text, and rows with numbers that the program prints.
func FuzzNcclTable(f *testing.F) {
	for _, form := range ncclForms {
		for _, mangle := range ncclMangles {
			f.Add([]byte(mangle.of(form.sample())))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		table := readNcclTable(raw)
		for _, row := range table.rows {
			for _, half := range row.halves {
				if half.busbw.missing == "" && !half.blank && (half.busbw.value < 0 || !strings.Contains(string(raw), half.busbw.text[:1])) {
					t.Errorf("row %+v", row)
				}
			}
		}
		if table.objection(2, []uint64{1 << 30, 2 << 30}) != "" {
			return
		}
		for _, word := range []string{"busbw", "1073741824", "2147483648", "Out of bounds values", "Avg bus bandwidth", "Rank"} {
			// A tag or a line of a log may stand within a word.
			if strings.Contains(string(raw), ">:") || strings.Contains(string(raw), " NCCL ") || strings.ContainsAny(string(raw), "\x1b<&") {
				break
			}
			if !strings.Contains(string(raw), word) {
				t.Errorf("a result without %q: %q", word, raw)
			}
		}
	})
}

// FuzzNcclJSON: a document that is read is one whole document, and its errors
// show none of its environment.
func FuzzNcclJSON(f *testing.F) {
	f.Add([]byte(`{"version":1,"env":["TOKEN=secret"],"nccl_version":2708,"config":{"devices":[{"rank":0}]},"results":[{"size":8,"count":2,"type":"float","redop":"sum","root":"    -1",` +
		`"out_of_place":null,"in_place":{"time":1.5,"alg_bw":2.5,"bus_bw":"nan","nwrong":null}}],"out_of_bounds":{"count":0},"average_bus_bandwidth":{"bandwidth":2.5},"end_time":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := readNcclJSON(raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) || doc.release == "" {
			t.Errorf("%q is read as %+v", raw, doc)
		}
		doc.difference(ncclTable{rows: doc.rows}) // must not panic
	})
}
