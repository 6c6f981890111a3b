package evidence

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a document.
const maxDepth = 32

// scanner walks one JSON document beside the Go type that it is decoded into.
// It reports through panics of *SyntaxError, which recover turns into errors,
// so that the grammar below reads as a grammar.
type scanner struct {
	data    []byte
	pos     int
	depth   int
	lenient bool // unknown fields are allowed
	path    []pathStep
}

type pathStep struct {
	name  string
	index int // of an array; -1 in an object
}

// scan checks that data is one strict document for the type t.
func scan(data []byte, t reflect.Type, lenient bool) (err error) {
	if !utf8.Valid(data) {
		at := invalidUTF8(data)
		return &SyntaxError{Line: lineOf(data, at), Offset: at, Reason: "invalid UTF-8"}
	}
	s := scanner{data: data, lenient: lenient}
	defer s.recover(&err)
	s.space()
	s.value(shapeOf(t))
	s.space()
	if s.pos != len(data) {
		s.fail("data after the document")
	}
	return nil
}

func invalidUTF8(data []byte) int {
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func lineOf(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte{'\n'}) }

func (s *scanner) fail(format string, args ...any) {
	var path strings.Builder
	for i, step := range s.path {
		switch {
		case step.index >= 0:
			fmt.Fprintf(&path, "[%d]", step.index)
		case step.name == "": // before the first key
		case i > 0:
			path.WriteString("." + step.name)
		default:
			path.WriteString(step.name)
		}
	}
	panic(&SyntaxError{
		Line:   lineOf(s.data, min(s.pos, len(s.data))),
		Offset: s.pos,
		Path:   path.String(),
		Reason: fmt.Sprintf(format, args...),
	})
}

func (s *scanner) recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *SyntaxError:
		*err = r
	default:
		panic(r)
	}
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.pos >= len(s.data) {
		s.fail("the document ends too early")
	}
	return s.data[s.pos]
}

func (s *scanner) expect(c byte, reason string) {
	if s.peek() != c {
		s.fail("%s", reason)
	}
	s.pos++
}

func (s *scanner) value(want *shape) {
	c := s.peek()
	if want.target != nil && c != 'n' {
		want = want.target
	}
	switch {
	case c == '{':
		s.enter()
		s.object(want)
		s.depth--
	case c == '[':
		s.enter()
		s.array(want)
		s.depth--
	case c == '"':
		s.text()
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
		if want.noNull {
			s.fail("null is not a value here")
		}
	default:
		s.fail("want a value, found %q", c)
	}
}

func (s *scanner) enter() {
	if s.depth++; s.depth > maxDepth {
		s.fail("nested deeper than %d", maxDepth)
	}
	s.pos++
	s.space()
}

func (s *scanner) word(word string) {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		s.fail("want %s", word)
	}
	s.pos += len(word)
}

func (s *scanner) object(want *shape) {
	var keys keySet
	if s.peek() == '}' {
		s.pos++
		return
	}
	s.path = append(s.path, pathStep{index: -1})
	for {
		s.path[len(s.path)-1].name = ""
		name, inner := s.key(want)
		s.path[len(s.path)-1].name = name
		if !keys.add(name) {
			s.fail("the key is there twice")
		}
		s.space()
		s.expect(':', "want \":\" after a key")
		s.space()
		s.value(inner)
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.pos++
			s.path = s.path[:len(s.path)-1]
			return
		default:
			s.fail("want \",\" or \"}\"")
		}
	}
}

// key reads a key and finds the shape of its value.
func (s *scanner) key(want *shape) (name string, inner *shape) {
	text := s.text()
	if want.fields == nil {
		return string(text), want.elem
	}
	if known, found := want.fields[string(text)]; found {
		return known.name, known.shape
	}
	s.unknown(want, string(text))
	return string(text), anyShape
}

func (s *scanner) unknown(want *shape, key string) {
	for name := range want.fields {
		if strings.EqualFold(name, key) {
			s.fail("unknown field %q: the name is spelled %q", key, name)
		}
	}
	if !s.lenient {
		s.fail("unknown field %q", key)
	}
}

func (s *scanner) array(want *shape) {
	if s.peek() == ']' {
		s.pos++
		return
	}
	s.path = append(s.path, pathStep{})
	for index := 0; ; index++ {
		s.path[len(s.path)-1].index = index
		s.value(want.elem)
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case ']':
			s.pos++
			s.path = s.path[:len(s.path)-1]
			return
		default:
			s.fail("want \",\" or \"]\"")
		}
	}
}

// text reads a string and returns its decoded bytes, which may share memory
// with the document.
func (s *scanner) text() []byte {
	s.expect('"', "want a text in double quotes")
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[start : s.pos-1]
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			s.fail("control character in a text")
		default:
			s.pos++
		}
	}
	s.fail("the text does not end")
	return nil
}

// escaped goes on with a string at its first backslash.
func (s *scanner) escaped(start int) []byte {
	decoded := append([]byte(nil), s.data[start:s.pos]...)
	for {
		c := s.peek()
		switch {
		case c == '"':
			s.pos++
			return decoded
		case c < 0x20:
			s.fail("control character in a text")
		case c != '\\':
			decoded = append(decoded, c)
			s.pos++
			continue
		}
		s.pos++
		switch c := s.peek(); c {
		case '"', '\\', '/':
			decoded = append(decoded, c)
		case 'b':
			decoded = append(decoded, '\b')
		case 'f':
			decoded = append(decoded, '\f')
		case 'n':
			decoded = append(decoded, '\n')
		case 'r':
			decoded = append(decoded, '\r')
		case 't':
			decoded = append(decoded, '\t')
		case 'u':
			decoded = utf8.AppendRune(decoded, s.escapedRune())
			continue
		default:
			s.fail("unknown escape \\%c", c)
		}
		s.pos++
	}
}

// escapedRune reads the rest of \uXXXX, and of the second half of a pair.
func (s *scanner) escapedRune() rune {
	r := s.hex4()
	if !utf16.IsSurrogate(r) {
		return r
	}
	if bytes.HasPrefix(s.data[s.pos:], []byte(`\u`)) {
		s.pos++
		if pair := utf16.DecodeRune(r, s.hex4()); pair != utf8.RuneError {
			return pair
		}
	}
	s.fail("half of a surrogate pair")
	return 0
}

func (s *scanner) hex4() rune {
	s.pos++
	if s.pos+4 > len(s.data) {
		s.fail("the document ends too early")
	}
	n, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 16)
	if err != nil {
		s.fail("want four hex digits after \\u")
	}
	s.pos += 4
	return rune(n)
}

func (s *scanner) number() {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else {
		s.digits()
	}
	exponent := false
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		s.digits()
	}
	if s.pos < len(s.data) && (s.data[s.pos] == 'e' || s.data[s.pos] == 'E') {
		exponent = true
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		s.digits()
	}
	const always = 300 // digits that never leave the range of a float64
	if !exponent && s.pos-start <= always {
		return
	}
	if f, err := strconv.ParseFloat(string(s.data[start:s.pos]), 64); err != nil || math.IsInf(f, 0) {
		s.fail("the number is beyond what a 64-bit float holds")
	}
}

func (s *scanner) digits() {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	if s.pos == start {
		s.fail("want a digit")
	}
}

// keySet holds the keys of one object. Most objects are small.
type keySet struct {
	few  [16]string
	n    int
	many map[string]struct{}
}

func (k *keySet) add(key string) bool {
	if k.many != nil {
		if _, found := k.many[key]; found {
			return false
		}
		k.many[key] = struct{}{}
		return true
	}
	for _, other := range k.few[:k.n] {
		if other == key {
			return false
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	k.many = map[string]struct{}{key: {}}
	for _, key := range k.few {
		k.many[key] = struct{}{}
	}
	return true
}

// shape is what the scanner needs to know of a Go type.
type shape struct {
	noNull bool
	target *shape           // of a pointer
	fields map[string]field // of a struct; nil: any key
	elem   *shape           // of a map, slice or anything else
}

type field struct {
	name  string
	shape *shape
}

var (
	anyShape        = newAnyShape()
	shapes          sync.Map // reflect.Type to *shape
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func newAnyShape() *shape {
	s := &shape{}
	s.elem = s
	return s
}

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := buildShape(t, map[reflect.Type]*shape{})
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape)
}

func buildShape(t reflect.Type, open map[reflect.Type]*shape) *shape {
	if s, ok := open[t]; ok {
		return s
	}
	s := &shape{elem: anyShape}
	open[t] = s
	pointer := reflect.PointerTo(t)
	own := pointer.Implements(unmarshaler) || pointer.Implements(textUnmarshaler)
	switch t.Kind() {
	case reflect.Interface:
	case reflect.Pointer:
		s.target = buildShape(t.Elem(), open)
	case reflect.Slice, reflect.Map, reflect.Array:
		if !own {
			s.elem = buildShape(t.Elem(), open)
		}
	case reflect.Struct:
		s.noNull = true
		if !own {
			s.fields = map[string]field{}
			addFields(s.fields, t, open)
		}
	default:
		s.noNull = true
	}
	return s
}

func addFields(fields map[string]field, t reflect.Type, open map[reflect.Type]*shape) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			addFields(fields, f.Type, open)
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[name] = field{name: name, shape: buildShape(f.Type, open)}
	}
}
