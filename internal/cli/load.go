package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
	"github.com/rackproof/rackproof/runbook"
)

const runbookSuffix = ".runbook.hcl"

// inputOptions are the flags of every command that compiles a runbook.
type inputOptions struct {
	vars     []string
	varFiles []string
}

func (o *inputOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.vars, "var", nil, "value of a variable: NAME=VALUE (repeatable)")
	cmd.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "file of values, *.runvars.hcl (repeatable)")
}

// inputs gathers the values of variables: environment, files, flags, each
// over the one before.
func (o *inputOptions) inputs(p *Process, folder string) (runbook.Inputs, error) {
	in := runbook.Inputs{Dir: folder, ToolVersion: version, Vars: make(map[string]string), Env: make(map[string]string)}
	for _, entry := range p.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if name, ours := strings.CutPrefix(name, runbook.EnvPrefix); ours {
			in.Env[name] = value
		}
	}
	for _, text := range o.vars {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return in, usageError("--var %q: want NAME=VALUE", text)
		}
		in.Vars[name] = value
	}
	for _, path := range o.varFiles {
		data, err := os.ReadFile(path)
		if err != nil {
			return in, fail(ExitUsage, fmt.Errorf("--var-file: %w", plainPath(err)))
		}
		in.Files = append(in.Files, runbook.VarFile{Name: path, Bytes: data})
	}
	return in, nil
}

// compiled is a runbook that was loaded and compiled, with what was said of it.
type compiled struct {
	runbook *runbook.Runbook
	plan    *evidence.Plan
	folder  string // the absolute path of the runbook's folder
	diags   hcl.Diagnostics
	files   map[string]*hcl.File // by the names that diags use
}

// named makes diagnostics name files as the user did. A loader knows names
// below its folder alone, and two runbooks may have one name in two folders.
// Files in given are named by the user already; what is no file, such as a
// variable of the environment, has a name of its own.
func named(diags hcl.Diagnostics, files map[string]*hcl.File, folder string, given []runbook.VarFile) (hcl.Diagnostics, map[string]*hcl.File) {
	name := func(name string) string {
		if _, file := files[name]; !file || slices.ContainsFunc(given, func(f runbook.VarFile) bool { return f.Name == name }) {
			return name
		}
		return filepath.Join(folder, name)
	}
	in := func(r *hcl.Range) *hcl.Range {
		if r == nil {
			return nil
		}
		moved := *r
		moved.Filename = name(r.Filename)
		return &moved
	}
	moved := make(hcl.Diagnostics, 0, len(diags))
	for _, d := range diags {
		one := *d
		one.Subject, one.Context = in(d.Subject), in(d.Context)
		moved = append(moved, &one)
	}
	byName := make(map[string]*hcl.File, len(files))
	for file := range files {
		byName[name(file)] = files[file]
	}
	return moved, byName
}

// compile loads and compiles the runbook at path. What is wrong with the
// runbook is in diags; the error is of what stands before it.
func (o *inputOptions) compile(p *Process, path string) (*compiled, error) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	in, err := o.inputs(p, folder)
	if err != nil {
		return nil, err
	}
	c, err := compileFile(folder, filepath.Base(path), in)
	if err != nil {
		return nil, err
	}
	c.diags, c.files = named(c.diags, c.files, filepath.Dir(path), in.Files)
	return c, nil
}

func compileFile(folder, name string, in runbook.Inputs) (*compiled, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fail(ExitUsage, plainPath(err))
	}
	defer root.Close()
	if _, err := root.Stat(name); err != nil {
		return nil, fail(ExitUsage, fmt.Errorf("runbook %s: %w", filepath.Join(folder, name), errors.Unwrap(err)))
	}
	c := &compiled{folder: folder}
	c.runbook, c.diags = runbook.Load(root.FS(), name, in, known())
	if !c.diags.HasErrors() {
		plan, more := c.runbook.Compile()
		c.plan, c.diags = plan, append(c.diags, more...)
	}
	c.files = c.runbook.Files()
	return c, nil
}

// explain renders c's diagnostics on stderr, and returns the error that they
// amount to.
func (c *compiled) explain(p *Process, cmd *cobra.Command) error {
	if len(c.diags) > 0 {
		if err := diag.Text(p.Stderr, c.diags, c.files, p.colored(cmd, p.StderrTTY), p.Width); err != nil {
			return err
		}
	}
	return invalid(c.diags, c.files)
}

// invalid is the error of diagnostics that hold one.
func invalid(diags hcl.Diagnostics, files map[string]*hcl.File) error {
	if !diags.HasErrors() {
		return nil
	}
	err := errors.New("the runbook is invalid: " + evidence.Count(len(diags.Errs()), "error"))
	return &failure{code: ExitUsage, err: err, diags: diag.From(diags, files)}
}

// Names inside a plan directory, which `plan --out` writes and `run` reads.
const (
	planFile     = "plan.json"
	inputsFile   = "inputs.json"
	sourceFolder = "runbook"
	mediaInputs  = "application/vnd.rackproof.inputs.v1+json"
)

// planInputs is inputs.json: what the plan was compiled with beside its
// sources.
type planInputs struct {
	MediaType string                     `json:"mediaType"`
	Minor     int                        `json:"minor"`
	Folder    string                     `json:"folder"` // for the paths of the executor block
	Values    map[string]json.RawMessage `json:"values"`
}

// target compiles what `run` was given: a runbook, or a plan directory, whose
// sources must compile to its plan again.
func (o *inputOptions) target(p *Process, path string) (*compiled, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fail(ExitUsage, plainPath(err))
	}
	if !info.IsDir() {
		return o.compile(p, path)
	}
	if len(o.vars)+len(o.varFiles) > 0 {
		return nil, usageError("--var and --var-file: the values of a plan directory are fixed in its %s", inputsFile)
	}
	return compilePlanDir(path)
}

func compilePlanDir(dir string) (*compiled, error) {
	planBytes, err := os.ReadFile(filepath.Join(dir, planFile))
	if errors.Is(err, fs.ErrNotExist) {
		if isFile(filepath.Join(dir, filepath.FromSlash(evidence.PlanPath))) {
			bundle, err := inspectRun(dir)
			if err != nil {
				return nil, err
			}
			return nil, fail(ExitUsage, fmt.Errorf("%s is the directory of a run, and a run begins only once", dir), "to go on with it: "+resumeCommand(bundle.Plan, dir))
		}
		return nil, fail(ExitUsage, fmt.Errorf("%s is a directory without %s", dir, planFile), "name a runbook file, or a directory that rackproof plan --out has written")
	}
	if err != nil {
		return nil, plainPath(err)
	}
	var plan evidence.Plan
	if _, err := evidence.DecodeDocument(planBytes, evidence.MediaPlan, &plan); err != nil {
		return nil, fail(ExitUsage, fmt.Errorf("%s: %w", filepath.Join(dir, planFile), err))
	}
	inputBytes, err := os.ReadFile(filepath.Join(dir, inputsFile))
	if err != nil {
		return nil, fail(ExitUsage, plainPath(err))
	}
	var in planInputs
	if _, err := evidence.DecodeDocument(inputBytes, mediaInputs, &in); err != nil {
		return nil, fail(ExitUsage, fmt.Errorf("%s: %w", filepath.Join(dir, inputsFile), err))
	}
	if in.Values == nil {
		in.Values = make(map[string]json.RawMessage)
	}
	folder := filepath.Join(dir, sourceFolder)
	c, err := compileFile(folder, plan.Path, runbook.Inputs{Values: in.Values, Dir: in.Folder, ToolVersion: version})
	if err != nil {
		return nil, err
	}
	if c.diags, c.files = named(c.diags, c.files, folder, nil); c.plan == nil {
		return c, nil
	}
	again, err := evidence.Encode(c.plan)
	if err != nil {
		return nil, err
	}
	if string(again) != string(planBytes) {
		return nil, fail(ExitUsage, fmt.Errorf("%s: its sources compile to another plan now", filepath.Join(dir, planFile)),
			"the plan or its sources were edited, or another build made it: plan the runbook again, and let it be approved again")
	}
	return c, nil
}

// writePlanDir writes a plan directory; dir must not exist.
func (c *compiled) writePlanDir(dir string) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fail(ExitUsage, fmt.Errorf("%s exists, and nothing is overwritten", dir), "choose another name")
		}
		return plainPath(err)
	}
	in := planInputs{MediaType: mediaInputs, Minor: evidence.Minor, Folder: c.folder, Values: make(map[string]json.RawMessage)}
	for _, v := range c.plan.Variables {
		in.Values[v.Name] = v.Value
	}
	for name, value := range map[string]any{planFile: c.plan, inputsFile: in} {
		doc, err := evidence.Encode(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), doc, 0o644); err != nil {
			return plainPath(err)
		}
	}
	for name, data := range c.runbook.Sources() {
		path := filepath.Join(dir, sourceFolder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return plainPath(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return plainPath(err)
		}
	}
	return nil
}
