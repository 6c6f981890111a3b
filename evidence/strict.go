package evidence

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// DecodeStrict decodes data, one JSON document, into the value that into
// points to. Beyond what encoding/json refuses it refuses duplicate keys at
// any depth (encoding/json keeps the last), names that differ from a known
// one only in case (encoding/json takes them), unknown fields, a null where a
// number, text or object is wanted, nesting deeper than 32, invalid UTF-8,
// lone surrogates, numbers beyond float64, and trailing data. The error is a
// *SyntaxError.
func DecodeStrict(data []byte, into any) error { return decode(data, into, false) }

// DecodeDocument decodes a document that starts with "mediaType" and "minor",
// as DecodeStrict does. The media type must be media. Where the document's
// minor is newer than this build's, newer is true and unknown fields are left
// alone.
func DecodeDocument(data []byte, media string, into any) (newer bool, err error) {
	given, minor, err := documentHead(data)
	if err != nil {
		return false, err
	}
	if given != media {
		return false, fmt.Errorf("media type is %q, want %q: it is another document, or one of another major version", given, media)
	}
	if minor < 0 {
		return false, fmt.Errorf("minor version is %d, want 0 or more", minor)
	}
	newer = minor > Minor
	return newer, decode(data, into, newer)
}

// SyntaxError says where a document is not strict JSON of its type.
type SyntaxError struct {
	Line   int    // from 1
	Offset int    // in bytes
	Path   string // such as tests[3].name; empty at the top
	Reason string
}

// Error is one line: line, path, reason.
func (e *SyntaxError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Path, e.Reason)
}

// documentHead reads the first two fields of a document.
func documentHead(data []byte) (media string, minor int, err error) {
	s := scanner{data: data}
	defer s.recover(&err)
	s.space()
	s.expect('{', "a document is an object that starts with \"mediaType\"")
	s.space()
	if string(s.text()) != "mediaType" {
		s.fail("a document starts with \"mediaType\"")
	}
	s.space()
	s.expect(':', "want \":\"")
	s.space()
	media = string(s.text())
	s.space()
	s.expect(',', "\"mediaType\" is followed by \"minor\"")
	s.space()
	if string(s.text()) != "minor" {
		s.fail("\"mediaType\" is followed by \"minor\"")
	}
	s.space()
	s.expect(':', "want \":\"")
	s.space()
	start := s.pos
	s.number()
	if err := json.Unmarshal(data[start:s.pos], &minor); err != nil {
		s.fail("the minor version is a whole number")
	}
	return media, minor, nil
}

func decode(data []byte, into any, lenient bool) error {
	target := reflect.TypeOf(into)
	if target == nil || target.Kind() != reflect.Pointer {
		return fmt.Errorf("decode into %T: want a pointer", into)
	}
	if err := scan(data, target.Elem(), lenient); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return unmarshalError(data, err)
	}
	return nil
}

// unmarshalError turns an error of encoding/json into one with a place.
func unmarshalError(data []byte, err error) error {
	var e SyntaxError
	e.Reason = strings.TrimPrefix(err.Error(), "json: ")
	e.Line = 1
	if typed, ok := err.(*json.UnmarshalTypeError); ok {
		e.Offset = min(int(typed.Offset), len(data))
		e.Path = typed.Field
		e.Reason = fmt.Sprintf("a %s cannot be a %s", typed.Value, typed.Type)
		e.Line = lineOf(data, e.Offset)
	}
	return &e
}
