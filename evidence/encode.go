package evidence

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Encode is the only way that a document becomes bytes: fields in the order
// of their struct, map keys sorted, no HTML escaping, two spaces of indent
// and a line end. The same value gives the same bytes.
//
// A *Plan has one cell a line, so that 200,000 cells stay near 20 MB and a
// difference of two plans can be read.
func Encode(v any) ([]byte, error) {
	if p, ok := v.(Plan); ok {
		v = &p
	}
	if p, ok := v.(*Plan); ok && p != nil && len(p.Cells) > 0 {
		return encodePlan(p)
	}
	return encode(v, "  ")
}

// EncodeLine is Encode on one line, with its line end.
func EncodeLine(v any) ([]byte, error) { return encode(v, "") }

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

func encodePlan(p *Plan) ([]byte, error) {
	var b bytes.Buffer
	const cellBytes = 100
	b.Grow(cellBytes * len(p.Cells))
	if err := writePlan(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// PlanDigest is the digest of the plan's document, which is not kept: the
// pages of one of 20 MB cost more time than its hash.
func PlanDigest(p *Plan) (Digest, error) {
	sum := sha256.New()
	w := bufio.NewWriterSize(sum, 1<<16)
	if err := errors.Join(writePlan(w, p), w.Flush()); err != nil {
		return "", err
	}
	return DigestFromSum(sum.Sum(nil)), nil
}

func writePlan(w io.Writer, p *Plan) error {
	rest := *p
	if len(p.Cells) > 0 {
		rest.Cells = []Cell{}
	}
	frame, err := encode(&rest, "  ")
	if err != nil {
		return err
	}
	if len(p.Cells) == 0 {
		_, err := w.Write(frame)
		return err
	}
	// No text holds a raw line end, so only the plan's own field can begin a
	// line at this indent.
	const empty = "\n  \"cells\": []"
	head, tail, found := bytes.Cut(frame, []byte(empty))
	if !found {
		return fmt.Errorf("encode %T: no field for cells", p)
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	line.Write(head)
	line.WriteString(empty[:len(empty)-1])
	for i := range p.Cells {
		line.WriteString("\n    ")
		if err := e.Encode(&p.Cells[i]); err != nil {
			return fmt.Errorf("encode cell %s: %w", p.Cells[i].ID, err)
		}
		if i < len(p.Cells)-1 {
			line.Truncate(line.Len() - 1)
			line.WriteByte(',')
		}
		if _, err := line.WriteTo(w); err != nil {
			return err
		}
	}
	_, err = w.Write(append([]byte("  ]"), tail...))
	return err
}

// OrEmpty is list, or an empty one where it is nil: in a document "[]" says
// that there is nothing, and "null" says nothing.
func OrEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
