package evidence

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxFiles bounds the files of a bundle.
	MaxFiles = 2_000_000
	// MaxManifestBytes bounds manifest.json.
	MaxManifestBytes = 512 << 20
	// MaxSumsBytes bounds SHA256SUMS.
	MaxSumsBytes = 512 << 20

	saltBytes = 16
)

// Manifest lists every file of a sealed run but itself, SHA256SUMS, the
// signature and approvals.
type Manifest struct {
	MediaType string          `json:"mediaType"` // MediaManifest
	Minor     int             `json:"minor"`
	Files     []ManifestEntry `json:"files"` // sorted bytewise by path
}

// ManifestEntry is one file.
type ManifestEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hex
	Role   string `json:"role"`
	Node   string `json:"node,omitempty"` // its real name, where the file is of one node
	// Salt is 128 random bits in hex: without it a short output or a host
	// name could be guessed from the hash of an entry that is not disclosed.
	Salt string `json:"salt"`
}

// encodeManifest writes one entry a line, so that a line's bytes can be the
// leaf of a hash tree.
func encodeManifest(m Manifest) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"mediaType\":%q,\"minor\":%d,\"files\":[\n", m.MediaType, m.Minor)
	for i, entry := range m.Files {
		line, err := EncodeLine(entry)
		if err != nil {
			return nil, err
		}
		b.Write(trimLine(line))
		if i < len(m.Files)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// ReadManifest reads manifest.json and refuses whatever Seal does not write:
// entries out of order, a second one of a path, paths that no bundle has,
// another layout of the lines. A leaf is the bytes of an entry's line without
// comma and line end; leaves share memory with data.
func ReadManifest(data []byte) (m Manifest, leaves [][]byte, err error) {
	if len(data) > MaxManifestBytes {
		return Manifest{}, nil, fmt.Errorf("manifest: %d bytes are over the limit of %d", len(data), MaxManifestBytes)
	}
	line := 1
	fail := func(err error) (Manifest, [][]byte, error) {
		var syntax *SyntaxError
		if errors.As(err, &syntax) {
			err = errors.New(strings.TrimPrefix(syntax.Error(), "line 1: "))
		}
		return Manifest{}, nil, fmt.Errorf("manifest line %d: %w", line, err)
	}
	first, rest, _ := bytes.Cut(data, []byte{'\n'})
	newer, err := DecodeDocument(append(bytes.Clone(first), "]}"...), MediaManifest, &m)
	if err != nil {
		return fail(err)
	}
	if !bytes.HasSuffix(first, []byte("\"files\":[")) {
		return fail(errors.New("want the document's head up to the bracket of its files"))
	}
	for more := true; ; {
		line++
		text, tail, found := bytes.Cut(rest, []byte{'\n'})
		if !found {
			return fail(errors.New("the manifest ends too early"))
		}
		rest = tail
		if string(text) == "]}" {
			if more && len(m.Files) > 0 {
				return fail(errors.New("an entry is missing after the comma"))
			}
			break
		}
		if !more {
			return fail(errors.New("want \"]}\" after an entry without a comma"))
		}
		text, more = bytes.CutSuffix(text, []byte{','})
		var entry ManifestEntry
		if err := decode(text, &entry, newer); err != nil {
			return fail(err)
		}
		if err := entry.check(text, newer); err != nil {
			return fail(err)
		}
		if n := len(m.Files); n > 0 && m.Files[n-1].Path >= entry.Path {
			return fail(fmt.Errorf("%s does not come after %s: entries are sorted and a path is there once", entry.Path, m.Files[n-1].Path))
		}
		if len(m.Files) == MaxFiles {
			return fail(fmt.Errorf("more than %d files", MaxFiles))
		}
		m.Files = append(m.Files, entry)
		leaves = append(leaves, text)
	}
	if len(rest) > 0 {
		return fail(errors.New("data after the manifest"))
	}
	return m, leaves, nil
}

func (e ManifestEntry) check(line []byte, newer bool) error {
	switch {
	case Unlisted(e.Path):
		return fmt.Errorf("%s cannot be in a manifest", e.Path)
	case e.Size < 0:
		return fmt.Errorf("%s: the size is %d", e.Path, e.Size)
	case !isHex(e.SHA256, 64):
		return fmt.Errorf("%s: sha256 is not 64 lower-case hex digits", e.Path)
	case !isHex(e.Salt, 2*saltBytes):
		return fmt.Errorf("%s: salt is not %d lower-case hex digits", e.Path, 2*saltBytes)
	}
	if err := ValidPath(e.Path); err != nil {
		return err
	}
	if newer {
		return nil // it may have fields that this build does not write
	}
	canonical, err := EncodeLine(e)
	if err != nil {
		return err
	}
	if !bytes.Equal(trimLine(canonical), line) {
		return fmt.Errorf("%s: the line is not spelled as this version writes it", e.Path)
	}
	return nil
}

func isHex(text string, length int) bool {
	return len(text) == length && strings.Trim(text, "0123456789abcdef") == ""
}

// encodeSums writes the list that sha256sum -c reads.
func encodeSums(m Manifest) []byte {
	var b bytes.Buffer
	for _, entry := range m.Files {
		fmt.Fprintf(&b, "%s  %s\n", entry.SHA256, entry.Path)
	}
	return b.Bytes()
}

// ReadSums reads SHA256SUMS: the lower-case hex SHA-256 of each path. Lines
// are as coreutils writes them, sorted bytewise by path, a path once.
func ReadSums(data []byte) (map[string]string, error) {
	if len(data) > MaxSumsBytes {
		return nil, fmt.Errorf("sums: %d bytes are over the limit of %d", len(data), MaxSumsBytes)
	}
	sums := map[string]string{}
	last := ""
	for line := 1; len(data) > 0; line++ {
		text, rest, found := bytes.Cut(data, []byte{'\n'})
		if !found {
			return nil, fmt.Errorf("sums line %d: the line has no end", line)
		}
		data = rest
		sum, p, found := strings.Cut(string(text), "  ")
		if !found || !isHex(sum, 64) {
			return nil, fmt.Errorf("sums line %d: want 64 lower-case hex digits, two spaces and a path", line)
		}
		if err := ValidPath(p); err != nil {
			return nil, fmt.Errorf("sums line %d: %w", line, err)
		}
		if Unlisted(p) {
			return nil, fmt.Errorf("sums line %d: %s cannot be in the list", line, p)
		}
		if p <= last {
			return nil, fmt.Errorf("sums line %d: %s does not come after %s: lines are sorted and a path is there once", line, p, last)
		}
		if line > MaxFiles {
			return nil, fmt.Errorf("sums line %d: more than %d files", line, MaxFiles)
		}
		sums[p] = sum
		last = p
	}
	return sums, nil
}

// hexSalt draws one salt from random bytes.
func hexSalt(random []byte) string { return hex.EncodeToString(random[:saltBytes]) }
