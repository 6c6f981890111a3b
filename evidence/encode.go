package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	rest := *p
	rest.Cells = []Cell{}
	frame, err := encode(&rest, "  ")
	if err != nil {
		return nil, err
	}
	// No text holds a raw line end, so only the plan's own field can begin a
	// line at this indent.
	const empty = "\n  \"cells\": []"
	head, tail, found := bytes.Cut(frame, []byte(empty))
	if !found {
		return nil, fmt.Errorf("encode %T: no field for cells", p)
	}
	var b bytes.Buffer
	const cellBytes = 100
	b.Grow(len(frame) + cellBytes*len(p.Cells))
	b.Write(head)
	b.WriteString(empty[:len(empty)-1])
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range p.Cells {
		if i > 0 {
			b.Truncate(b.Len() - 1)
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		if err := e.Encode(&p.Cells[i]); err != nil {
			return nil, fmt.Errorf("encode cell %s: %w", p.Cells[i].ID, err)
		}
	}
	b.WriteString("  ]")
	b.Write(tail)
	return b.Bytes(), nil
}
