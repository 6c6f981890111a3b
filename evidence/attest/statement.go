package attest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/rackproof/rackproof/evidence"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	payloadType   = "application/vnd.in-toto+json"
)

// statement is an in-toto Statement v1. Predicate keeps its bytes, because
// it has a version of its own.
type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string        `json:"name"`
	Digest subjectDigest `json:"digest"`
}

type subjectDigest struct {
	SHA256 string `json:"sha256"`
}

// Statement is the in-toto Statement v1 of a sealed run directory, in the
// bytes that are to be signed. It reads the files and does not compare them
// with the manifest; Sign does.
func Statement(fsys fs.FS) ([]byte, error) {
	text, _, err := buildStatement(fsys)
	return text, err
}

func buildStatement(fsys fs.FS) ([]byte, *Predicate, error) {
	l := readLists(fsys)
	if err := l.err(); err != nil {
		return nil, nil, fmt.Errorf("statement: %w", err)
	}
	predicate, err := derive(fsys, l.manifest.data)
	if err != nil {
		return nil, nil, fmt.Errorf("statement: %w", err)
	}
	text, err := statementOf(predicate, l.manifest.data, l.sums.data)
	if err != nil {
		return nil, nil, fmt.Errorf("statement: %w", err)
	}
	return text, predicate, nil
}

// statementOf is the statement about the two lists.
func statementOf(predicate *Predicate, manifest, sums []byte) ([]byte, error) {
	body, err := encodeLine(predicate)
	if err != nil {
		return nil, err
	}
	text, err := encodeLine(statement{
		Type: statementType,
		Subject: []subject{
			{Name: evidence.ManifestPath, Digest: subjectDigest{SHA256: evidence.DigestOf(manifest).Hex()}},
			{Name: evidence.SumsPath, Digest: subjectDigest{SHA256: evidence.DigestOf(sums).Hex()}},
		},
		PredicateType: PredicateType,
		Predicate:     body,
	})
	if err != nil {
		return nil, err
	}
	if len(text) > maxStatement {
		return nil, fmt.Errorf("%d bytes: %w", len(text), errTooLarge)
	}
	return text, nil
}

// encodeLine is the deterministic encoding on one line, without the line end.
func encodeLine(v any) ([]byte, error) {
	line, err := evidence.EncodeLine(v)
	return bytes.TrimSuffix(line, []byte("\n")), err
}
