package runbook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The limits of what is read.
const (
	maxRunbook   = 1 << 20  // bytes of a runbook, a trust file or a variable file
	maxFile      = 4 << 20  // bytes of a file that file() reads
	maxSources   = 64 << 20 // bytes of all of them
	maxDepth     = 64       // brackets inside each other
	maxOperators = 50_000   // in one file: the parser recurses for each
	maxLinks     = 40       // symbolic links of one path, as in Linux
)

// A folder reads files at or below one directory of a file system, and keeps
// what it has read.
type folder struct {
	fsys  fs.FS
	dir   string // of the folder inside fsys, "." for its root
	owner string // whose folder it is, for errors
	read  map[string][]byte
	bytes int
}

func newFolder(fsys fs.FS, dir, owner string) *folder {
	return &folder{fsys: fsys, dir: dir, owner: owner, read: map[string][]byte{}}
}

// file reads name, relative to the folder, and remembers it under that name.
func (f *folder) file(name string, most int64) ([]byte, error) {
	if data, ok := f.read[name]; ok {
		return data, nil
	}
	data, err := f.load(name, most)
	if err != nil {
		return nil, err
	}
	if f.bytes += len(data); f.bytes > maxSources {
		return nil, fmt.Errorf("the files of this %s have more than %d MiB in all", f.owner, maxSources>>20)
	}
	f.read[name] = data
	return data, nil
}

func (f *folder) load(name string, most int64) ([]byte, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	real, err := f.resolve(path.Join(f.dir, name))
	if err != nil {
		return nil, err
	}
	file, err := f.fsys.Open(real)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %q in the folder of the %s", name, f.owner)
	}
	if err != nil {
		return nil, fmt.Errorf("%q cannot be opened: %w", name, cause(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w", name, cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w", name, cause(err))
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%q has more than %d KiB", name, most>>10)
	}
	return data, nil
}

// cause is err without the path that fs puts in front: the caller names it.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// checkPath accepts a relative path below the folder, in its one spelling, so
// that a file has one name among the sources.
func checkPath(name string) error {
	for _, r := range name {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("the path %q has a character that cannot be printed", name)
		}
	}
	switch {
	case name == "":
		return errors.New("the path is empty")
	case strings.HasPrefix(name, "/"), strings.Contains(name, `\`), len(name) > 1 && name[1] == ':':
		return fmt.Errorf("%q is not a path inside the folder: write it relative to this file, with \"/\" between its parts", name)
	case name == "..", strings.HasPrefix(path.Clean(name), "../"), strings.Contains("/"+name+"/", "/../"):
		return fmt.Errorf("%q leads out of the folder: everything that decides is kept beside the file that names it", name)
	case !fs.ValidPath(name) || name == ".":
		return fmt.Errorf("%q is not a path in its plain spelling: write %q", name, path.Clean(name))
	}
	return nil
}

// resolve follows symbolic links and refuses those that lead out of the
// folder. A file system that knows no links is taken as it is.
func (f *folder) resolve(name string) (string, error) {
	rest, done := strings.Split(name, "/"), f.dir
	if f.dir != "." {
		rest = strings.Split(strings.TrimPrefix(name, f.dir+"/"), "/")
	}
	for links := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		info, err := fs.Lstat(f.fsys, next)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			done = next // what is missing is reported when it is opened
			continue
		}
		target, err := fs.ReadLink(f.fsys, next)
		if err != nil {
			return "", fmt.Errorf("the link %q cannot be read: %w", next, cause(err))
		}
		full := path.Join(path.Dir(next), target)
		inside := f.dir == "." && full != ".." && !strings.HasPrefix(full, "../") || strings.HasPrefix(full, f.dir+"/")
		if links++; links > maxLinks || path.IsAbs(target) || !inside {
			return "", fmt.Errorf("%q is a link that leads out of the folder of the %s, to %q", next, f.owner, target)
		}
		within := strings.TrimPrefix(full, f.dir+"/")
		rest, done = append(strings.Split(within, "/"), rest...), f.dir
	}
	return done, nil
}

// parse reads one file of the language: not too large, not too deep, in UTF-8.
func parse(src []byte, filename string) (*hcl.File, hcl.Diagnostics) {
	start := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > maxRunbook {
		return &hcl.File{Bytes: nil}, hcl.Diagnostics{fail(RuleTooComplex, start, "File too large",
			fmt.Sprintf("This file has %d bytes, and at most %d are read. Move tables to CSV files and read them with csvdecode(file(…)).", len(src), maxRunbook))}
	}
	if i := bytes.IndexByte(src, 0); i >= 0 || !utf8.Valid(src) {
		return &hcl.File{Bytes: src}, hcl.Diagnostics{fail(RuleSyntax, start, "File is not text",
			"This file is not text in UTF-8, so it cannot be a runbook. Check that the path names the file that you mean.")}
	}
	if d := complexity(src, filename); d != nil {
		return &hcl.File{Bytes: src}, hcl.Diagnostics{d}
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	return file, tag(RuleSyntax, firstError(diags))
}

// firstError keeps the first error of a file that does not parse: a quote that
// is not closed turns everything after it inside out.
func firstError(diags hcl.Diagnostics) hcl.Diagnostics {
	var first *hcl.Diagnostic
	for _, d := range diags {
		if d.Severity == hcl.DiagError && (first == nil || d.Subject != nil && first.Subject != nil && d.Subject.Start.Byte < first.Subject.Start.Byte) {
			first = d
		}
	}
	if first == nil {
		return diags
	}
	return hcl.Diagnostics{first}
}

// complexity counts what the parser recurses on. The scanner does not recurse,
// and a stack that overflows cannot be recovered from.
func complexity(src []byte, filename string) *hcl.Diagnostic {
	// The scanner repeats the parser's complaints; those are reported there.
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
	depth, operators := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOParen, hclsyntax.TokenOBrack,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
			operators++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenMinus, hclsyntax.TokenBang, hclsyntax.TokenQuestion, hclsyntax.TokenPlus,
			hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent, hclsyntax.TokenAnd, hclsyntax.TokenOr,
			hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenGreaterThan,
			hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThanEq:
			operators++
		}
		if t.Type == hclsyntax.TokenNumberLit && len(t.Bytes) > longNumber {
			return fail(RuleValueTooLarge, t.Range, "Value too large", fmt.Sprintf("This number has more than %d digits.", longNumber))
		}
		if depth > maxDepth {
			return fail(RuleTooComplex, t.Range, "Nested too deeply",
				fmt.Sprintf("More than %d brackets are open here. Split the expression with locals.", maxDepth))
		}
		if operators > maxOperators {
			return fail(RuleTooComplex, t.Range, "File too complex",
				fmt.Sprintf("There are more than %d operators and brackets up to here. Move tables to CSV files and read them with csvdecode(file(…)).", maxOperators))
		}
	}
	return nil
}
