package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var numberForm = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`)

// parseNumber reads a decimal number. Anything else, "nan", "0x1" and numbers
// beyond float64 among them, is returned as the missing token.
func parseNumber(text string) (value float64, missing string) {
	text = strings.TrimSpace(text)
	if !numberForm.MatchString(text) {
		return 0, token(text)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(value, 0) {
		return 0, token(text)
	}
	return value, ""
}

// tokenLimit bounds a missing token, in bytes.
const tokenLimit = 80

// token makes a raw text fit to stand for a missing value: never empty, one
// line, valid UTF-8, short.
func token(raw string) string {
	raw = strings.ToValidUTF8(raw, "\uFFFD")
	if raw == "" {
		return "(empty)"
	}
	if line, _, more := strings.Cut(raw, "\n"); more {
		raw = line + "…"
	}
	if len(raw) <= tokenLimit {
		return raw
	}
	end := tokenLimit
	for !utf8.RuneStart(raw[end]) {
		end--
	}
	return raw[:end] + "…"
}

// parseJSON decodes exactly one JSON document; numbers stay json.Number.
func parseJSON(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var document json.RawMessage
	if err := decoder.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("more text after byte %d", decoder.InputOffset())
	}
	return jsonTree(document)
}

// twice stands in a tree for the value of a key that its object has more than
// once: neither of two answers can be trusted.
type twice struct{}

// valuesLimit bounds the values of one JSON document, objects and lists among
// them. The largest that is of use here is a list of times for each iteration
// of nccl-tests (-J with -I 1): 100 iterations of 31 sizes, in two halves, on
// 256 processes are 1.6 million. A value takes up to 200 bytes in a tree and
// three in a text ("[],"), so the length of a text is no bound.
const valuesLimit = 2 << 20

var errManyValues = fmt.Errorf("more than %d values in it", valuesLimit)

// jsonTree builds the tree of one whole, valid JSON document.
func jsonTree(document json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	left := valuesLimit
	return jsonNode(decoder, &left)
}

// jsonNode reads the next value, unless none is left of those that a document
// may have.
func jsonNode(decoder *json.Decoder, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, errManyValues
	}
	first, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch first {
	case json.Delim('{'):
		object := make(map[string]any)
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			value, err := jsonNode(decoder, left)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprint(key)
			if _, again := object[name]; again {
				value = twice{}
			}
			object[name] = value
		}
		_, err := decoder.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			value, err := jsonNode(decoder, left)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := decoder.Token()
		return list, err
	}
	return first, nil
}

// pointerTokens splits a JSON pointer (RFC 6901) such as /a/0/b, or a dotted
// path such as a.0.b, into unescaped tokens.
func pointerTokens(path string) []string {
	if path == "" {
		return nil
	}
	rest, pointer := strings.CutPrefix(path, "/")
	if !pointer {
		return strings.Split(path, ".")
	}
	tokens := strings.Split(rest, "/")
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i := range tokens {
		tokens[i] = unescape.Replace(tokens[i])
	}
	return tokens
}

// pointerText is the JSON pointer of tokens.
func pointerText(tokens ...string) string {
	var text strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, t := range tokens {
		text.WriteString("/" + escape.Replace(t))
	}
	return text.String()
}

// lookup walks root along tokens.
func lookup(root any, tokens ...string) (value any, found bool) {
	for _, t := range tokens {
		switch node := root.(type) {
		case map[string]any:
			root, found = node[t]
			if !found {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(node) || strconv.Itoa(i) != t {
				return nil, false
			}
			root = node[i]
		case twice:
			return node, true // of an answer that cannot be trusted no part can
		default:
			return nil, false
		}
	}
	return root, true
}

// jsonNumber is the number at a value: a JSON number, or a text that is one
// (many tools quote theirs). Everything else is missing.
func jsonNumber(value any, found bool) (number float64, missing string) {
	if !found {
		return 0, "(absent)"
	}
	switch v := value.(type) {
	case json.Number:
		return parseNumber(v.String())
	case string:
		return parseNumber(v)
	}
	return 0, jsonToken(value)
}

// jsonText is the text at a value; null, objects and lists are missing.
func jsonText(value any, found bool) (text, missing string) {
	if !found {
		return "", "(absent)"
	}
	switch v := value.(type) {
	case string:
		return v, ""
	case json.Number:
		return v.String(), ""
	case bool:
		return strconv.FormatBool(v), ""
	}
	return "", jsonToken(value)
}

func jsonToken(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "(an object)"
	case []any:
		return "(a list)"
	case twice:
		return reportedTwice
	}
	return token(fmt.Sprint(value))
}

// differ reports whether a is off b by more than a share of b.
func differ(a, b, share float64) bool { return a < b-share*b || a > b+share*b }
