package evidence

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallJournal is the journal of a run with one attempt and a note.
func smallJournal(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	j := journal{file: &memoryFile{Buffer: &b}, now: func() time.Time { return time.Date(2026, 11, 30, 14, 2, 11, 5000, time.UTC) }}
	for _, r := range []Record{
		{Event: EventOpen, Media: MediaJournal, Run: "r1", Plan: DigestOf(nil), Tool: &Tool{Name: "rackproof", Checks: map[string]int{"a": 1}}},
		{Event: EventAttemptStart, Cell: "disk/n1.r1", Attempt: 1},
		{Event: EventNote, Reason: "line end \n, \u2028 and <html>"},
		{Event: EventAttemptEnd, Cell: "disk/n1.r1", Attempt: 1, Document: DigestOf(nil)},
		{Event: EventClose},
	} {
		if _, err := j.append(r); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// memoryFile is a journal's file whose writes fail from a size on.
type memoryFile struct {
	*bytes.Buffer
	limit int // 0: none
}

func (f *memoryFile) Write(b []byte) (int, error) {
	if room := f.limit - f.Len(); f.limit > 0 && room < len(b) {
		n, _ := f.Buffer.Write(b[:room])
		return n, syscall.ENOSPC
	}
	return f.Buffer.Write(b)
}
func (f *memoryFile) Sync() error               { return nil }
func (f *memoryFile) Truncate(size int64) error { f.Buffer.Truncate(int(size)); return nil }
func (f *memoryFile) Close() error              { return nil }

func TestJournalTornAtEveryByte(t *testing.T) {
	whole := smallJournal(t)
	for cut := range len(whole) + 1 {
		records, size, err := ReadJournal(bytes.NewReader(whole[:cut]))
		lines := bytes.Count(whole[:cut], []byte{'\n'})
		lastEnd := bytes.LastIndexByte(whole[:cut], '\n') + 1
		if len(records) != lines || size != int64(lastEnd) {
			t.Fatalf("cut at %d: %d records in %d bytes, want %d in %d", cut, len(records), size, lines, lastEnd)
		}
		var torn *JournalError
		switch {
		case cut == lastEnd && err != nil:
			t.Fatalf("cut at a line end, %d: %v", cut, err)
		case cut != lastEnd && (!errors.As(err, &torn) || !torn.Torn || torn.Line != lines+1 || torn.Offset != int64(lastEnd)):
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestJournalEdits(t *testing.T) {
	whole := smallJournal(t)
	lines := strings.SplitAfter(string(whole), "\n")
	edit := func(n int, old, new string) string {
		if !strings.Contains(lines[n], old) {
			t.Fatalf("line %d has no %q: %s", n, old, lines[n])
		}
		changed := append([]string{}, lines...)
		changed[n] = strings.Replace(lines[n], old, new, 1)
		return strings.Join(changed, "")
	}
	for name, tc := range map[string]struct {
		journal string
		line    int
		torn    bool
		want    string
	}{
		"line edited":        {edit(1, `"attempt":1`, `"attempt":2`), 3, false, "the line before was changed"},
		"line removed":       {lines[0] + strings.Join(lines[2:], ""), 2, false, "has number 2, want 1"},
		"line moved":         {lines[0] + lines[2] + lines[1] + strings.Join(lines[3:], ""), 2, false, "has number 2, want 1"},
		"line doubled":       {lines[0] + lines[0] + strings.Join(lines[1:], ""), 2, false, "has number 0, want 1"},
		"first removed":      {strings.Join(lines[1:], ""), 1, false, "has number 1, want 0"},
		"chain edited":       {edit(1, `"prev":"sha256:`, `"prev":"sha256:0`), 2, false, "digest"},
		"unknown field":      {edit(1, `"attempt":1`, `"attempt":1,"extra":2`), 2, false, `unknown field "extra"`},
		"doubled field":      {edit(1, `"attempt":1`, `"attempt":1,"attempt":1`), 2, false, "twice"},
		"field in upper":     {edit(1, `"attempt":1`, `"Attempt":1`), 2, false, `spelled "attempt"`},
		"unknown event":      {edit(1, `attempt_start`, `attempt_begin`), 2, false, `unknown event "attempt_begin"`},
		"garbage inside":     {lines[0] + "\x00\x00\n" + strings.Join(lines[1:], ""), 2, false, "not JSON"},
		"garbage at the end": {string(whole) + "\x00\x00\n", 6, true, "not JSON"},
		"half at the end":    {string(whole) + `{"seq":5`, 6, true, "no end"},
		"blank line":         {string(whole) + "\n", 6, true, "not JSON"},
		"newer at the end":   {string(whole) + `{"seq":5,"newer":1}` + "\n", 6, false, `unknown field "newer"`},
		"other media":        {edit(0, `journal.v1`, `journal.v2`), 1, false, "another major version"},
		"no plan":            {edit(0, `"plan":"`+string(DigestOf(nil))+`",`, ""), 1, false, "no run or no plan"},
	} {
		records, _, err := ReadJournal(strings.NewReader(tc.journal))
		var bad *JournalError
		if !errors.As(err, &bad) || bad.Line != tc.line || bad.Torn != tc.torn || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v (torn %v), want line %d torn %v %q", name, err, bad != nil && bad.Torn, tc.line, tc.torn, tc.want)
		}
		if len(records) != tc.line-1 {
			t.Errorf("%s: %d records before the bad line, want %d", name, len(records), tc.line-1)
		}
	}
}

func TestJournalOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		events []Event
		want   string
	}{
		"good":              {[]Event{EventOpen, EventNote, EventStop, EventResume, EventClose, EventReopen, EventClose}, ""},
		"no open":           {[]Event{EventNote}, `the first record is "note"`},
		"open twice":        {[]Event{EventOpen, EventOpen}, `a second "open"`},
		"after close":       {[]Event{EventOpen, EventClose, EventNote}, `"note" follows "close"`},
		"close twice":       {[]Event{EventOpen, EventClose, EventClose}, `"close" follows "close"`},
		"reopen of an open": {[]Event{EventOpen, EventReopen}, `"reopen" follows "open"`},
	} {
		j := journal{file: &memoryFile{Buffer: &bytes.Buffer{}}, now: time.Now}
		var err error
		for _, e := range tc.events {
			if _, err = j.append(Record{Event: e, Media: MediaJournal, Run: "r", Plan: DigestOf(nil)}); err != nil {
				break
			}
		}
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestJournalFull(t *testing.T) {
	for limit := 1; limit < 900; limit += 37 {
		var b bytes.Buffer
		j := journal{file: &memoryFile{Buffer: &b, limit: limit}, now: time.Now}
		var err error
		appended := 0
		for err == nil {
			if _, err = j.append(Record{Event: []Event{EventOpen, EventNote}[min(appended, 1)], Media: MediaJournal, Run: "r", Plan: DigestOf(nil)}); err == nil {
				appended++
			}
		}
		var full *JournalFull
		if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room") {
			t.Fatalf("limit %d: %v", limit, err)
		}
		if _, again := j.append(Record{Event: EventNote}); !errors.As(again, &full) {
			t.Errorf("limit %d: a later append: %v", limit, again)
		}
		records, whole, err := ReadJournal(&b)
		if err != nil || len(records) != appended || whole != j.chain.whole {
			t.Errorf("limit %d: %d records of %d, %v", limit, len(records), appended, err)
		}
	}
}

// TestStoreOnAFullDisk takes the way of an error from the journal's file up to
// the callers of the store.
func TestStoreOnAFullDisk(t *testing.T) {
	s := newRun(t)
	a := beginCell(t, s, s.Plan().Cells[0], "n1")
	runStep(t, a, "df", "n1", "x")
	before := readAll(t, filepath.Join(s.Dir(), JournalPath))
	real := s.journal.file
	s.journal.file = fullFile{real}
	var full *JournalFull
	if _, err := s.End(a, nil, false); !errors.As(err, &full) {
		t.Errorf("end: %v", err)
	}
	if _, err := s.Begin(s.Plan().Cells[1], []string{"n2"}); !errors.As(err, &full) {
		t.Errorf("begin: %v", err)
	}
	if err := s.Seal(NewDerived(nil, passing())); err == nil {
		t.Error("a run with a lost record was sealed")
	}
	closeRun(t, s)
	if after := readAll(t, filepath.Join(s.Dir(), JournalPath)); !bytes.Equal(before, after) {
		t.Errorf("the journal has changed from %d to %d bytes", len(before), len(after))
	}
	again, err := Reopen(s.Dir(), testTool())
	if err != nil {
		t.Fatal(err)
	}
	// attempt.json was whole, so that only its record is made up for.
	got := Results(again.Plan(), again.Records(), again.FS())[0].Attempts
	if len(got) != 1 || got[0].Cut || len(got[0].Unmeasured) > 0 {
		t.Errorf("attempts after the resume: %+v", got)
	}
	closeRun(t, again)
}

// fullFile is a journal's file on a full disk: a part of each line arrives.
type fullFile struct{ journalFile }

func (f fullFile) Write(b []byte) (int, error) {
	n, err := f.journalFile.Write(b[:len(b)/2])
	return n, errors.Join(err, &os.PathError{Op: "write", Path: JournalPath, Err: syscall.ENOSPC})
}

func FuzzReadJournal(f *testing.F) {
	whole := smallJournal(f)
	f.Add(whole)
	f.Add(whole[:len(whole)-7])
	f.Add(append(whole, "\x00\n"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, size, err := ReadJournal(bytes.NewReader(data))
		if size < 0 || size > int64(len(data)) {
			t.Fatalf("%d whole bytes of %d", size, len(data))
		}
		again, same, errAgain := ReadJournal(bytes.NewReader(data[:size]))
		if errAgain != nil || same != size || len(again) != len(records) {
			t.Fatalf("the whole part is not whole: %v", errAgain)
		}
		if err == nil && size != int64(len(data)) {
			t.Fatalf("no error and %d bytes left", int64(len(data))-size)
		}
	})
}
