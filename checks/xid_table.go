package checks

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// severity is what an event of the NVIDIA driver means for an acceptance test
// with our own, known-good binaries.
type severity string

const (
	severityFail         severity = "fail"         // the part has failed
	severityInconclusive severity = "inconclusive" // driver or firmware: reset, and test again
	severityReview       severity = "review"       // somebody must look
	severityNote         severity = "note"         // it goes with another event
)

var severities = []severity{severityFail, severityInconclusive, severityReview, severityNote}

func severityWords() []string {
	words := make([]string, len(severities))
	for i, s := range severities {
		words[i] = string(s)
	}
	return words
}

// xidsCSV has every XID (173) and SXid (92) that NVIDIA's catalogue and the
// Fabric Manager guide list, as gpud carries them; class and action are ours.
//
//go:embed xids.csv
var xidsCSV string

// nvlink5CSV has the rules of the catalogue for the XIDs 144 to 150, of which
// the unit and its error status say what happened.
//
//go:embed nvlink5_xids.csv
var nvlink5CSV string

// xidRow is a row of xids.csv. Its code is that of a XID, such as "79", or
// "SXID:12028".
type xidRow struct{ code, name, class, action, source string }

// nvlink5Row is a row of nvlink5_xids.csv.
type nvlink5Row struct {
	code, units          string // of the units, divided by "/", any
	status               uint32
	resolution, severity string
}

// xidTable is both tables.
type xidTable struct {
	rows    map[string]xidRow
	nvlink5 []nvlink5Row
}

// nvidiaXids are the tables that are built in.
var nvidiaXids = sync.OnceValue(func() xidTable {
	table, err := readXidTable(xidsCSV, nvlink5CSV)
	if err != nil {
		panic(err) // a test reads the same texts
	}
	return table
})

func readXidTable(xids, nvlink5 string) (xidTable, error) {
	table := xidTable{rows: make(map[string]xidRow)}
	rows, err := readTable(xids, "xid", "name", "class", "action", "source")
	if err != nil {
		return xidTable{}, fmt.Errorf("xids.csv: %w", err)
	}
	for _, row := range rows {
		r := xidRow{row[0], row[1], row[2], row[3], row[4]}
		if _, twice := table.rows[r.code]; twice {
			return xidTable{}, fmt.Errorf("xids.csv: %s is there twice", r.code)
		}
		table.rows[r.code] = r
	}
	rows, err = readTable(nvlink5, "xid", "unit", "error_status", "resolution", "severity", "source")
	if err != nil {
		return xidTable{}, fmt.Errorf("nvlink5_xids.csv: %w", err)
	}
	for _, row := range rows {
		status, err := strconv.ParseUint(row[2], 0, 32)
		if err != nil {
			return xidTable{}, fmt.Errorf("nvlink5_xids.csv: error status %q is not a word of 32 bits", row[2])
		}
		table.nvlink5 = append(table.nvlink5, nvlink5Row{row[0], row[1], uint32(status), row[3], row[4]})
	}
	return table, nil
}

// readTable reads a CSV text with exactly these headings.
func readTable(text string, headings ...string) ([][]string, error) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], headings) {
		return nil, fmt.Errorf("the headings are not %s", strings.Join(headings, ", "))
	}
	return rows[1:], nil
}

// classSeverity is the severity of a class; false for one that is unknown.
func classSeverity(class string) (severity, bool) {
	switch class {
	case "hardware_fatal", "sxid_potentially_fatal", "sxid_always_fatal":
		return severityFail, true
	case "driver_or_firmware":
		return severityInconclusive, true
	case "hardware_contained_or_wear", "application_first", "engine_exception_app_or_hw",
		"nvlink_subcode_dependent", "unused_or_reserved", "sxid_non_fatal":
		return severityReview, true
	case "informational_or_secondary":
		return severityNote, true
	}
	return "", false
}

// severity is that of one event by itself. A code that is not in the table is
// one to look at.
func (t xidTable) severity(e xidEvent) severity {
	found, known := classSeverity(t.rows[e.code].class)
	if !known {
		found = severityReview
	}
	if found == severityReview && (e.fatal || t.resets(e)) && t.rows[e.code].class != "unused_or_reserved" {
		return severityFail
	}
	return found
}

// resets reports whether NVIDIA's answer to an event of NVLink 5 is to reset
// the GPU. A status has bits of more than one row where more than one thing
// went wrong, unless it is a row itself.
func (t xidTable) resets(e xidEvent) bool {
	if e.unit == "" {
		return false
	}
	exact, bits := false, false
	resets := false
	for _, row := range t.nvlink5 {
		if row.code != e.code || !slices.Contains(strings.Split(row.units, "/"), e.unit) {
			continue
		}
		reset := row.resolution == "RESET_GPU"
		switch {
		case row.status == e.status:
			exact, resets = true, resets || reset
		case row.status&e.status != 0 && row.status&(row.status-1) == 0:
			bits = bits || reset
		}
	}
	if exact {
		return resets
	}
	return bits
}
