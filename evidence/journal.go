package evidence

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxJournalLine  = 4 << 20
	maxJournalBytes = 1 << 30
)

// JournalError says where a journal stops being a whole chain of records.
type JournalError struct {
	Line   int   // from 1
	Offset int64 // of the line's first byte
	// Torn says that only the last line is bad, and bad in the way that a
	// death in the middle of a write leaves it: without its line end, or no
	// JSON. Resuming cuts it off.
	Torn bool
	Err  error
}

// Error names the line.
func (e *JournalError) Error() string {
	return fmt.Sprintf("journal line %d (byte %d): %v", e.Line, e.Offset, e.Err)
}

// Unwrap is the cause.
func (e *JournalError) Unwrap() error { return e.Err }

var (
	errNoLineEnd = errors.New("the line has no end: the program died while it wrote")
	errNotJSON   = errors.New("the line is not JSON")
)

// ReadJournal reads the records of a journal and verifies their numbers and
// their hash chain. It returns every record before the first bad line and
// whole, the bytes that these take; the error is a *JournalError, or that of
// r.
func ReadJournal(r io.Reader) (records []Record, whole int64, err error) {
	c := chain{}
	err = c.read(r)
	return c.records, c.whole, err
}

// chain is a journal as far as it was read.
type chain struct {
	records []Record
	whole   int64  // the bytes that they take
	last    Digest // of the last line
}

func (c *chain) read(r io.Reader) error {
	lines := bufio.NewReaderSize(io.LimitReader(r, maxJournalBytes+1), 1<<16)
	var buffer []byte
	for {
		line, err := readLine(lines, &buffer)
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF && c.whole+int64(len(line)) > maxJournalBytes:
			return c.fail(false, fmt.Errorf("the journal is longer than %d bytes", maxJournalBytes))
		case err == io.EOF:
			return c.fail(true, errNoLineEnd)
		case errors.Is(err, bufio.ErrBufferFull):
			return c.fail(false, fmt.Errorf("the line is longer than %d bytes", maxJournalLine))
		case err != nil:
			return fmt.Errorf("read journal: %w", err)
		}
		text := trimLine(line)
		record, err := readRecord(text, int64(len(c.records)), c.last)
		if err == nil {
			err = checkOrder(c.records, record)
		}
		if err != nil && !json.Valid(text) {
			_, more := lines.ReadByte()
			return c.fail(more == io.EOF, errNotJSON)
		}
		if err != nil {
			return c.fail(false, err)
		}
		c.records = append(c.records, record)
		c.last = DigestOf(text)
		c.whole += int64(len(line))
	}
}

func (c *chain) fail(torn bool, err error) error {
	return &JournalError{Line: len(c.records) + 1, Offset: c.whole, Torn: torn, Err: err}
}

// readLine reads up to and with the next line end. The bytes are good until
// the next call.
func readLine(r *bufio.Reader, buffer *[]byte) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	*buffer = (*buffer)[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(*buffer) > maxJournalLine {
			return nil, err
		}
		*buffer = append(*buffer, line...)
		line, err = r.ReadSlice('\n')
	}
	*buffer = append(*buffer, line...)
	return *buffer, err
}

func readRecord(line []byte, seq int64, prev Digest) (Record, error) {
	var r Record
	if err := DecodeStrict(line, &r); err != nil {
		var syntax *SyntaxError
		if errors.As(err, &syntax) {
			err = errors.New(strings.TrimPrefix(syntax.Error(), "line 1: "))
		}
		return r, err
	}
	switch {
	case r.Seq != seq:
		return r, fmt.Errorf("the record has number %d, want %d: a line was added, removed or moved", r.Seq, seq)
	case r.Prev != prev:
		return r, fmt.Errorf("the record follows %s, want %s: the line before was changed or removed", orNothing(r.Prev), orNothing(prev))
	case !r.Event.known():
		return r, fmt.Errorf("unknown event %q: it was written by a newer version, or by hand", r.Event)
	}
	return r, nil
}

func orNothing(d Digest) string {
	if d == "" {
		return "nothing"
	}
	return string(d)
}

func (e Event) known() bool {
	switch e {
	case EventOpen, EventResume, EventReopen, EventNode, EventPhaseStart, EventPhaseEnd,
		EventCapture, EventCaptureSkip, EventAttemptStart, EventFaultOpen, EventFaultClose, EventAttemptEnd,
		EventSkip, EventGate, EventStop, EventNote, EventClose:
		return true
	}
	return false
}

// checkOrder holds the rules that make a sequence of records a run: it begins
// with open, and only reopen follows close.
func checkOrder(before []Record, next Record) error {
	if len(before) == 0 {
		switch {
		case next.Event != EventOpen:
			return fmt.Errorf("the first record is %q, want %q", next.Event, EventOpen)
		case next.Media != MediaJournal:
			return fmt.Errorf("media type is %q, want %q: it was written by another major version", next.Media, MediaJournal)
		case next.Plan == "" || next.Run == "":
			return fmt.Errorf("the first record names no run or no plan")
		}
		return nil
	}
	last := before[len(before)-1].Event
	switch {
	case next.Time.Before(before[len(before)-1].Time) && next.Event != EventResume && next.Event != EventReopen:
		return fmt.Errorf("the record is of %s, before the one above it, of %s", next.Time, before[len(before)-1].Time)
	case next.Event == EventOpen:
		return fmt.Errorf("a second %q", EventOpen)
	case last == EventClose && next.Event != EventReopen:
		return fmt.Errorf("%q follows %q, which ends a run", next.Event, EventClose)
	case next.Event == EventReopen && last != EventClose:
		return fmt.Errorf("%q follows %q, want %q before it", EventReopen, last, EventClose)
	}
	return nil
}

// JournalFull says that the journal could not be written, most often because
// the disk is full. What it holds is still a valid prefix. The run stops and
// can be resumed.
type JournalFull struct{ Err error }

// Error names the remedy.
func (e *JournalFull) Error() string {
	return fmt.Sprintf("write journal: %v: make room, then resume the run", e.Err)
}

// Unwrap is the cause.
func (e *JournalFull) Unwrap() error { return e.Err }

// journalFile is what a journal needs of its file.
type journalFile interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// journal is the writing end. It is not safe for concurrent use: the store
// locks.
type journal struct {
	file   journalFile
	chain  chain
	failed error
	now    func() time.Time
}

func (j *journal) append(r Record) (Record, error) {
	if j.failed != nil {
		return Record{}, j.failed
	}
	r.Seq = int64(len(j.chain.records))
	r.Prev = j.chain.last
	r.Time = j.now().UTC().Truncate(time.Microsecond)
	if !r.Event.known() {
		return Record{}, fmt.Errorf("append to journal: unknown event %q", r.Event)
	}
	if err := checkOrder(j.chain.records, r); err != nil {
		return Record{}, fmt.Errorf("append to journal: %w", err)
	}
	line, err := EncodeLine(&r)
	if err != nil {
		return Record{}, fmt.Errorf("append to journal: %w", err)
	}
	if len(line) > maxJournalLine {
		return Record{}, fmt.Errorf("append to journal: a %q record of %d bytes is over the limit of %d", r.Event, len(line), maxJournalLine)
	}
	if err := j.write(line); err != nil {
		// What a failed sync left on the disk is unknown, so nothing may be
		// appended after it; cutting the line off is only for the reader.
		j.failed = &JournalFull{Err: errors.Join(err, j.file.Truncate(j.chain.whole))}
		return Record{}, j.failed
	}
	j.chain.whole += int64(len(line))
	j.chain.last = DigestOf(trimLine(line))
	j.chain.records = append(j.chain.records, r)
	return r, nil
}

func (j *journal) write(line []byte) error {
	if n, err := j.file.Write(line); err != nil {
		return err
	} else if n < len(line) {
		return io.ErrShortWrite
	}
	return j.file.Sync()
}
