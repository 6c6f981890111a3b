package runbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// Known is what the labels of a runbook may name.
type Known struct {
	Checks    checks.Catalog
	Executors []runner.Kind
	Faults    []runner.FaultKind
}

// Inputs is all that a runbook is compiled with beside its own files.
type Inputs struct {
	// Vars are values of variables as text, from flags: the text itself where
	// the variable is a string, else an expression.
	Vars map[string]string
	// Env are such values from environment variables, each called EnvPrefix
	// and the variable's name; they are under Files.
	Env map[string]string
	// Values are typed values as JSON, from a sealed plan. Where it is not
	// nil, no other source of values is read, and every *.runvars.hcl beside
	// the runbook counts as a source: the folder then holds a plan's sources
	// and nothing else.
	Values map[string]json.RawMessage
	// Files are variable files, later ones over earlier ones, under Vars.
	Files []VarFile
	// Dir is the real path of the runbook's folder. Relative paths in the
	// executor block are joined to it.
	Dir string
	// ToolVersion is compared with required_version; empty skips it.
	ToolVersion string
	// SkipRequiredVersion reads required_version and does not compare it.
	SkipRequiredVersion bool
}

// VarFile is a variable file. Only the last element of Name is kept among the
// sources; it must end in .runvars.hcl.
type VarFile struct {
	Name  string
	Bytes []byte
}

// EnvPrefix begins the names of environment variables with values.
const EnvPrefix = "RACKPROOF_VAR_"

// varFileSuffix ends the names of variable files.
const varFileSuffix = ".runvars.hcl"

// Runbook is a decoded runbook.
type Runbook struct {
	scope
	known Known
	in    Inputs
	base  string // of the runbook's file
	from  *folder
	meter *meter
	root  content

	name, title, version string
	variables            []*variable
	parties              []evidence.Party
	owners               []*owner
	fleet                fleet
	nodesets             map[string][]string // the fleet's own set is among them, by the fleet's name
	phases               []*phase
	captures             evidence.Captures
	sampleRange          hcl.Range // of sample_interval
	sampled              bool      // a test samples at that interval
	tests                []*test
	releases             []*release
}

// Load reads and checks the runbook at path in fsys. The result is never nil,
// so that Files and Sources can be asked for after errors; Compile then
// refuses.
func Load(fsys fs.FS, file string, in Inputs, k Known) (*Runbook, hcl.Diagnostics) {
	r := &Runbook{
		known: k,
		in:    in,
		base:  path.Base(file),
		from:  newFolder(fsys, path.Dir(file), "runbook"),
		meter: &meter{},
	}
	r.files = map[string]*hcl.File{}
	r.ctx = &hcl.EvalContext{Functions: functionTable(r.from), Variables: map[string]cty.Value{}}
	r.symbols = map[string][]string{}
	r.broken = map[string]bool{}
	r.kinds = referenceKinds
	stages := []func(){
		r.parse, r.decodeRunbook, r.decodeVariables, r.decodeLocals,
		r.decodeSettings, r.decodeTests, r.decodeReleases, r.checkWhole,
	}
	for _, stage := range stages {
		stage()
		if r.diags.HasErrors() {
			break
		}
	}
	r.diags = distinct(r.diags)
	return r, r.diags
}

// distinct leaves one of diagnostics that say the same of the same place: a
// splat over a list has one for each element.
func distinct(diags hcl.Diagnostics) hcl.Diagnostics {
	type said struct {
		severity        hcl.DiagnosticSeverity
		summary, detail string
		subject         hcl.Range
	}
	seen := make(map[said]bool)
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		if d.Subject == nil {
			return false
		}
		key := said{d.Severity, d.Summary, d.Detail, *d.Subject}
		again := seen[key]
		seen[key] = true
		return again
	})
}

// Sources are the bytes of every file that decided, by their path relative to
// the runbook's folder: the runbook itself, what file() read and the variable
// files.
func (r *Runbook) Sources() map[string][]byte { return r.from.read }

// Files are the parsed files by the name that diagnostics use, for snippets.
func (r *Runbook) Files() map[string]*hcl.File { return r.files }

// Executor is the kind of the fleet's executor and its configuration, with
// defaults filled in and relative paths joined to Inputs.Dir.
func (r *Runbook) Executor() (kind string, config json.RawMessage) {
	return r.fleet.executor, r.fleet.reach
}

// parse reads the runbook and the variable files, and sorts the blocks.
func (r *Runbook) parse() {
	src, err := r.from.file(r.base, maxRunbook)
	if err != nil {
		start := hcl.Range{Filename: r.base, Start: hcl.InitialPos, End: hcl.InitialPos}
		r.add(fail(RuleUnreadable, start, "Runbook cannot be read", sentence(err)))
		return
	}
	body := r.parseFile(src, r.base)
	if body == nil {
		return
	}
	schema := Schema()
	r.root, _ = r.content(body, schema)
	for typ, blocks := range r.root.blocks {
		if b, ok := schema.block(typ); ok && b.Label == "name" {
			r.symbols[typ] = symbolsOf(blocks)
		}
	}
	for _, b := range schema.Blocks {
		if b.Label == "name" && !b.Single {
			r.unique(r.root.blocks[b.Type])
		}
	}
	r.symbols["var"] = r.symbols["variable"]
	r.addVarFileSources()
}

// parseFile parses src and puts every expression under the meter. It is nil
// after errors.
func (r *Runbook) parseFile(src []byte, name string) *hclsyntax.Body {
	file, diags := parse(src, name)
	r.files[name] = file
	r.diags = append(r.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	body := file.Body.(*hclsyntax.Body)
	r.diags = append(r.diags, r.meter.install(body)...)
	return body
}

// addVarFileSources records the variable files among the sources.
func (r *Runbook) addVarFileSources() {
	files := r.in.Files
	if r.in.Values != nil {
		files = slices.Concat(files, r.enclosedVarFiles())
	}
	for _, f := range files {
		name := path.Base(strings.ReplaceAll(f.Name, `\`, "/"))
		rng := hcl.Range{Filename: f.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
		known, read := r.from.read[name]
		switch {
		case !strings.HasSuffix(name, varFileSuffix) || checkPath(name) != nil:
			r.add(fail(RuleVarFile, rng, "Unsuitable name of a variable file", fmt.Sprintf("The name of a variable file ends in %s, so that it is known among the sources of a plan. Rename %q.", varFileSuffix, f.Name)))
		case read && !bytes.Equal(known, f.Bytes):
			r.add(fail(RuleVarFile, rng, "Two files of one name", fmt.Sprintf("Two files named %q have different content. Both would be enclosed in the evidence under this name: rename one.", name)))
		default:
			r.from.read[name] = f.Bytes
		}
	}
}

// enclosedVarFiles are the variable files among the sources of a sealed plan.
func (r *Runbook) enclosedVarFiles() []VarFile {
	entries, err := fs.ReadDir(r.from.fsys, r.from.dir)
	if err != nil {
		return nil // a file system that cannot list has none to give
	}
	var files []VarFile
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), varFileSuffix) || !e.Type().IsRegular() {
			continue
		}
		if data, err := r.from.load(e.Name(), maxRunbook); err == nil {
			files = append(files, VarFile{Name: e.Name(), Bytes: data})
		}
	}
	return files
}

// sentence is an error as a sentence.
func sentence(err error) string {
	text := err.Error()
	if text == "" {
		return ""
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (r *Runbook) decodeRunbook() {
	block := r.root.one("runbook")
	schema, _ := Schema().block("runbook")
	c, ok := r.content(block.Body, schema)
	if !ok {
		return
	}
	r.name = block.Labels[0]
	r.title = r.optionalText(c.args["title"])
	r.version = r.optionalText(c.args["version"])
	if attr := c.args["required_version"]; attr != nil {
		r.requireVersion(attr)
	}
}

func (r *Runbook) requireVersion(attr *hclsyntax.Attribute) {
	text, ok := r.text(attr)
	if !ok {
		return
	}
	constraints, err := parseConstraints(text)
	if err != nil {
		r.add(fail(RuleVersionConstraint, attr.Expr.Range(), "Unsuitable version constraint", sentence(err)))
		return
	}
	if r.in.SkipRequiredVersion || r.in.ToolVersion == "" {
		return
	}
	tool, err := parseVersion(r.in.ToolVersion)
	if err != nil {
		r.add(warn(RuleToolVersion, attr.Expr.Range(), "Version of this build is not known",
			fmt.Sprintf("This build calls itself %q, which cannot be compared with %q. It is used all the same.", r.in.ToolVersion, text)))
		return
	}
	for _, c := range constraints {
		if !c.met(tool) {
			r.add(fail(RuleRequiredVersion, attr.Expr.Range(), "Unsupported version of rackproof",
				fmt.Sprintf("This runbook wants rackproof %s, and this is %s: %s is not met. Use a version that meets it.", text, r.in.ToolVersion, c)))
			return
		}
	}
}
