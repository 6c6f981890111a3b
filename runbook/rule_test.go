package runbook

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rackproof/rackproof/evidence/attest"
)

// minimalWith is the minimal runbook with one edit.
func minimalWith(t testing.TB, old, with string) []byte {
	t.Helper()
	src, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(src), old) {
		t.Fatalf("the minimal runbook has no %q", old)
	}
	return []byte(strings.Replace(string(src), old, with, 1))
}

func loadBytes(src []byte, in Inputs) (*Runbook, hcl.Diagnostics) {
	return Load(fstest.MapFS{"x.runbook.hcl": {Data: src}}, "x.runbook.hcl", in, catalogue())
}

// TestLaterPieces: every argument and block of the schema that this build does
// not implement is refused, wherever it stands, by one diagnostic that says so.
func TestLaterPieces(t *testing.T) {
	homes := map[string]string{ // an anchor inside each kind of block of the minimal runbook
		"":          "runbook \"sample\"",
		"runbook":   "  title = \"Sample rack\"\n",
		"fleet":     "  hosts = \"gpu[01-08]\"\n",
		"test":      "  duration = \"10m\"\n",
		"threshold": "    unit  = \"GB/s\"\n",
	}
	extra := map[string]string{ // blocks that the minimal runbook lacks
		"phase":    "phase \"other\" {\n%s\n}\n",
		"evidence": "evidence {\n%s\n}\n",
		"fault": `test "other" {
  phase    = phase.node
  nodes    = fleet.pod
  owner    = owner.ops
  duration = "10m"
  hazard   = "kills_process"

  establishes = {
    "Each node stays fast enough." = [threshold.busbw]
  }
  does_not_establish = ["Anything between nodes."]

  check "nccl_allreduce" {
    sizes = ["1GiB", "16GiB"]
  }

  fault "process_kill" {
    nodes   = fleet.pod
    process = "mdsd"
    %s
  }

  threshold "busbw" {
    min   = 440
    unit  = "GB/s"
    basis = "Contract, annex B"
  }
}
`,
		"release": "release \"final\" {\n  nodes   = fleet.pod\n  require = [phase.node]\n%s\n}\n",
	}
	count := 0
	var walk func(b Block)
	walk = func(b Block) {
		try := func(name, piece string) {
			count++
			anchor, here := homes[b.Type]
			var src []byte
			switch {
			case here && b.Type == "":
				src = minimalWith(t, anchor, piece+"\n\n"+anchor)
			case here:
				src = minimalWith(t, anchor, anchor+piece+"\n")
			default:
				src = fmt.Appendf(minimalWith(t, "", ""), extra[b.Type], piece)
			}
			_, diags := loadBytes(src, Inputs{})
			if len(diags) != 1 || ruleOf(diags[0]) != RuleNotYet || !strings.Contains(diags[0].Detail, "is part of the language, and not yet of this build") || !strings.Contains(diags[0].Detail, name) {
				t.Errorf("%s in %q: %v", name, b.Type, diags)
			}
		}
		for _, a := range b.Arguments {
			if a.Later {
				try(a.Name, "  "+a.Name+" = 1")
			}
		}
		for _, c := range b.Blocks {
			if c.Later {
				label := ""
				if c.Label != "" {
					label = " \"x\""
				}
				try(c.Type, c.Type+label+" {\n}")
			}
			walk(c)
		}
	}
	walk(Schema())
	if count < 25 {
		t.Errorf("only %d later pieces in the schema", count)
	}
}

// TestSchema: everything has a sentence that can become its documentation.
func TestSchema(t *testing.T) {
	sentence := regexp.MustCompile(`^\S.*[^.]\.$`)
	var walk func(path string, b Block)
	walk = func(path string, b Block) {
		if !sentence.MatchString(b.Doc) {
			t.Errorf("%s: doc %q", path, b.Doc)
		}
		seen := map[string]bool{}
		for _, a := range b.Arguments {
			if !sentence.MatchString(a.Doc) || a.Type == "" || seen[a.Name] {
				t.Errorf("%s.%s: type %q, doc %q, twice %v", path, a.Name, a.Type, a.Doc, seen[a.Name])
			}
			if a.Required && (a.Default != "" || a.Later) {
				t.Errorf("%s.%s: required, and has a default or is later", path, a.Name)
			}
			seen[a.Name] = true
		}
		for _, c := range b.Blocks {
			if seen[c.Type] {
				t.Errorf("%s.%s is an argument and a block", path, c.Type)
			}
			walk(path+"."+c.Type, c)
		}
	}
	walk("runbook file", Schema())
	walk("trust policy", TrustSchema())
	for _, f := range Functions() {
		if !sentence.MatchString(f.Doc) {
			t.Errorf("function %s: doc %q", f.Name, f.Doc)
		}
		if impure[f.Name] != "" {
			t.Errorf("function %s is said to be impure", f.Name)
		}
	}
}

func TestRulesAreUnique(t *testing.T) {
	seen := map[Rule]bool{}
	for _, r := range Rules() {
		if seen[r] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r.RuleID()) {
			t.Errorf("rule %q", r)
		}
		seen[r] = true
	}
}

// TestBombs: a text that asks for too much ends soon, with an error.
func TestBombs(t *testing.T) {
	locals := func(lines ...string) []byte {
		return []byte("locals {\n  " + strings.Join(lines, "\n  ") + "\n}\n" + string(minimalWith(t, "", "")))
	}
	doubling := func(first, form string, n int) []string {
		lines := []string{"v0 = " + first}
		for i := range n {
			lines = append(lines, fmt.Sprintf("v%d = ", i+1)+strings.ReplaceAll(form, "@", fmt.Sprintf("local.v%d", i)))
		}
		return lines
	}
	for name, src := range map[string][]byte{
		"range":              locals("a = range(1e9)"),
		"nested for":         locals("a = [for a in range(1000) : [for b in range(1000) : [for c in range(1000) : 0 if false]]]"),
		"text doubled":       locals(doubling(`"0123456789abcdefx"`, `"${@}${@}"`, 40)...),
		"list doubled":       locals(doubling(`[1, 2]`, `concat(@, @)`, 40)...),
		"object of lists":    locals(doubling(`[1, 2]`, `[@, @]`, 40)...),
		"number squared":     locals(doubling(`10`, `@ * @`, 40)...),
		"exponent":           locals("a = 1e999999999"),
		"exponent in text":   locals(`a = "${tonumber("1e999999999")}"`),
		"exponent in JSON":   locals(`a = jsonencode(jsondecode("[1e999999999]"))`),
		"exponent formatted": locals(`a = format("%f", "1e999999999")`),
		"format width":       locals(`a = format("%999999999d", 1)`),
		"format many":        locals(`a = formatlist("%999d", [for a in range(1000) : a])`, `b = join("", formatlist(join("", [for a in range(1000) : "%900d%%"]), [for a in range(1000) : a]))`),
		"replace":            locals(`a = join("", [for a in range(1000) : "x"])`, `b = replace(local.a, "", local.a)`, `c = replace(local.b, "", local.b)`),
		"join":               locals(`a = join("", [for a in range(1000) : "0123456789abcdefghijk"])`, `b = join(local.a, [for a in range(1000) : "x"])`),
		"split":              locals(`a = join("", [for a in range(1000) : join("", [for b in range(100) : "ab"])])`, `b = split("", local.a)`),
		"JSON depth":         locals(`a = jsondecode("` + strings.Repeat("[", 5000) + `")`),
		"digits":             locals("a = " + strings.Repeat("9", 5000)),
		"parentheses":        locals("a = " + strings.Repeat("(", 20_000)),
		"unary":              locals("a = " + strings.Repeat("!", 60_000) + "true"),
		"index":              locals("a = [1]" + strings.Repeat("[a]", 60_000)),
		"conditional":        locals("a = " + strings.Repeat("true?1:", 60_000) + "1"),
		"blocks":             []byte(strings.Repeat("a {\n", 10_000)),
		"templates":          locals("a = " + strings.Repeat("\"${", 20_000)),
		"infinite":           minimalWith(t, "sizes = [", "ranks = [1.7976931348623159e308]\n    sizes = ["),
		"infinite in JSON":   minimalWith(t, "sizes = [", "ranks = jsondecode(\"[1.7976931348623159e308]\")\n    sizes = ["),
		"names":              minimalWith(t, "gpu[01-08]", "gpu[1-99999999]"),
		"brackets":           minimalWith(t, "gpu[01-08]", "g[1-9999]u[1-9999]"),
		"node sets": append(minimalWith(t, "gpu[01-08]", "gpu[1-65536]"), func() (text string) {
			for i := range 5 {
				text += fmt.Sprintf("nodeset \"n%d\" {\n  hosts = \"gpu[1-65536]\"\n}\n", i)
			}
			return text
		}()...),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			r, diags := loadBytes(src, Inputs{})
			if !diags.HasErrors() {
				t.Error("no error")
			}
			if len(text(t, diags, r.Files())) > 100_000 {
				t.Errorf("%d diagnostics", len(diags))
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		constraint, version string
		want                bool
	}{
		{">= 0.1.0, < 2.0.0", "0.1.0", true},
		{">= 0.1.0, < 2.0.0", "2.0.0", false},
		{">= 0.1.0, < 2.0.0", "0.0.9", false},
		{">=0.1,<2", "1.9.9", true},
		{"1.2.0", "1.2.0", true},
		{"= 1.2", "1.2.1", false},
		{"!= 1.2.0", "1.2.0", false},
		{"> 1.2.0", "1.10.0", true},
		{"> 1.2.0", "1.2.0", false},
		{"<= 1.2.0", "1.2.0", true},
		{"~> 1.2", "1.9.0", true},
		{"~> 1.2", "2.0.0", false},
		{"~> 1.2.3", "1.2.9", true},
		{"~> 1.2.3", "1.3.0", false},
		{"~> 1.2.3", "1.2.2", false},
		{">= 1.2.0", "1.2.0-rc.1", false},
		{">= 1.2.0-rc.1", "1.2.0", true},
		{"< 1.2.0-rc.10", "1.2.0-rc.9", true},
		{">= 1.2.0", "v1.3.0+build.5", true},
	} {
		constraints, err := parseConstraints(test.constraint)
		if err != nil {
			t.Errorf("%s: %v", test.constraint, err)
			continue
		}
		v, err := parseVersion(test.version)
		if err != nil {
			t.Errorf("%s: %v", test.version, err)
			continue
		}
		got := true
		for _, c := range constraints {
			got = got && c.met(v)
		}
		if got != test.want {
			t.Errorf("%s with %s: %v", test.version, test.constraint, got)
		}
	}
	for _, bad := range []string{"", ",", ">=", "1.2.3.4", "latest", "> 1.0 < 2.0", ">= 1.0, ", "1..2", "-1"} {
		if _, err := parseConstraints(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	src := minimalWith(t, "  title = \"Sample rack\"\n", "  title = \"Sample rack\"\n  required_version = \">= 5.0.0\"\n")
	if _, diags := loadBytes(src, Inputs{ToolVersion: "1.0.0", SkipRequiredVersion: true}); diags.HasErrors() {
		t.Errorf("required_version was not skipped: %v", diags)
	}
}

// TestVariables: flags win over files, later files over earlier ones, these
// over the environment, and all of them over defaults.
func TestVariables(t *testing.T) {
	src := append(minimalWith(t, "", ""), `
variable "word" {
  type    = string
  default = "default"
}

variable "words" {
  type    = list(string)
  default = ["default"]
}
`...)
	a := VarFile{Name: "/tmp/a.runvars.hcl", Bytes: []byte("word = \"a\"\nwords = [\"a\"]\n")}
	b := VarFile{Name: "b.runvars.hcl", Bytes: []byte("word = \"b\"\n")}
	for _, test := range []struct {
		in   Inputs
		want string
	}{
		{Inputs{}, `"default" ["default"]`},
		{Inputs{Files: []VarFile{a}}, `"a" ["a"]`},
		{Inputs{Files: []VarFile{a, b}}, `"b" ["a"]`},
		{Inputs{Files: []VarFile{b, a}}, `"a" ["a"]`},
		{Inputs{Files: []VarFile{a, b}, Vars: map[string]string{"word": "[flag] \"${x}", "words": `["x", "y"]`}}, `"[flag] \"${x}" ["x","y"]`},
		{Inputs{Vars: map[string]string{"word": ""}}, `"" ["default"]`},
		{Inputs{Env: map[string]string{"word": "env", "words": `["env"]`}}, `"env" ["env"]`},
		{Inputs{Env: map[string]string{"word": "env", "words": `["env"]`}, Files: []VarFile{b}}, `"b" ["env"]`},
		{Inputs{Env: map[string]string{"word": "env"}, Vars: map[string]string{"word": "flag"}}, `"flag" ["default"]`},
	} {
		r, plan, diags := compileAll(fstest.MapFS{"x.runbook.hcl": {Data: src}}, "x.runbook.hcl", test.in)
		if diags.HasErrors() {
			t.Errorf("%+v: %v", test.in, diags)
			continue
		}
		if got := string(plan.Variables[0].Value) + " " + string(plan.Variables[1].Value); got != test.want {
			t.Errorf("%+v: %s, want %s", test.in, got, test.want)
		}
		for _, f := range test.in.Files {
			if name := f.Name[strings.LastIndex(f.Name, "/")+1:]; string(r.Sources()[name]) != string(f.Bytes) {
				t.Errorf("%s is not among the sources", name)
			}
		}
	}
	for name, in := range map[string]Inputs{
		"two files of one name": {Files: []VarFile{a, {Name: "other/a.runvars.hcl", Bytes: []byte("word = \"c\"\n")}}},
		"function in a file":    {Files: []VarFile{{Name: "c.runvars.hcl", Bytes: []byte("word = file(\"x.runbook.hcl\")\n")}}},
		"reference in a file":   {Files: []VarFile{{Name: "c.runvars.hcl", Bytes: []byte("word = var.words\n")}}},
		"function in a flag":    {Vars: map[string]string{"words": `[file("x.runbook.hcl")]`}},
		"two expressions":       {Vars: map[string]string{"words": "[]\nword = 1"}},
		"null":                  {Vars: map[string]string{"words": "null"}},
	} {
		if _, diags := loadBytes(src, in); len(diags) != 1 || !diags.HasErrors() {
			t.Errorf("%s: %v", name, diags)
		}
	}
}

// TestNumbersAsText: a number stands for a text only where nothing of it is
// lost, wherever a text is wanted.
func TestNumbersAsText(t *testing.T) {
	equals := func(value string) []byte {
		return minimalWith(t, "  threshold \"busbw\" {\n", "  threshold \"nccl_version\" {\n    equals = "+value+"\n    basis  = \"Contract\"\n  }\n\n  threshold \"busbw\" {\n")
	}
	expect := func(value string) []byte {
		return minimalWith(t, "  executor \"ssh\"", "  expect {\n    gpu_model = "+value+"\n  }\n\n  executor \"ssh\"")
	}
	variable := func(typ, value string) []byte {
		return append(minimalWith(t, "", ""), "variable \"v\" {\n  type    = "+typ+"\n  default = "+value+"\n}\n"...)
	}
	for _, test := range []struct {
		src  []byte
		in   Inputs
		want string // a part of the one error; empty: none
	}{
		{src: equals("12345678901234567891")},
		{src: equals("-5")},
		{src: equals("\"580.10\"")},
		{src: equals("580.1"), want: `would be "580.1"`},
		{src: equals("580.0"), want: `would be "580"`},
		{src: equals("(580.10)"), want: `would be "580.1"`},
		{src: equals("1e3"), want: `would be "1000"`},
		{src: equals("1e300"), want: `would be "1e+300"`},
		{src: equals("1160.2 / 2"), want: `would be "580.1"`},
		{src: expect("1.50"), want: "The fact \"gpu_model\" is a text"},
		{src: minimalWith(t, "title = \"Sample rack\"", "title = 1.50"), want: "The argument \"title\" is a text"},
		{src: minimalWith(t, "    unit  = \"GB/s\"\n", "    unit  = \"GB/s\"\n    at    = { size = 1.50 }\n"), want: "label's value is a text"},
		{src: minimalWith(t, "phase \"node\" {}", "phase \"node\" {}\n\nevidence {\n  capture = [[\"sleep\", 1.50]]\n}"), want: "Element 2 of the argument \"capture\""},
		{src: variable("string", "1.50"), want: "of variable \"v\" is a text"},
		{src: variable("list(string)", "[\"a\", 1.50]"), want: "Element 2 of the argument"},
		{src: variable("tuple([number, string])", "[1.50, 1.50]"), want: "Element 2 of the argument"},
		{src: variable("map(string)", "{ a = 1.50 }"), want: "Entry \"a\" of the argument"},
		{src: variable("object({ a = string, b = number })", "{ a = 1.50, b = 1.50 }"), want: "Entry \"a\" of the argument"},
		{src: variable("list(string)", "[]"), in: Inputs{Vars: map[string]string{"v": "[1.50]"}}, want: "Element 1 of the value"},
		{src: variable("string", "\"\""), in: Inputs{Vars: map[string]string{"v": "1.50"}}},
		{src: variable("string", "\"\""), in: Inputs{Files: []VarFile{{Name: "a.runvars.hcl", Bytes: []byte("v = 1.50\n")}}}, want: "The value of variable"},
		{src: variable("list(number)", "[1.50]")},
	} {
		_, diags := loadBytes(test.src, test.in)
		errs := diags.Errs()
		switch {
		case test.want == "" && len(errs) > 0:
			t.Errorf("%v", errs)
		case test.want != "" && (len(errs) != 1 || ruleOf(diags[0]) != RuleNumberText || !strings.Contains(errs[0].Error(), test.want)):
			t.Errorf("%v, want one with %q", errs, test.want)
		}
	}
}

// TestNodesetOrder: what a node set needs is found in its value, in whichever
// order the sets stand and however they are written.
func TestNodesetOrder(t *testing.T) {
	locals := "locals {\n  which = \"a\"\n}\n"
	a := "nodeset \"a\" {\n  hosts = \"gpu[01-02]\"\n}\n"
	for _, hosts := range []string{`"@a"`, `"@${local.which}"`, `format("@%s", local.which)`, `"gpu01,@${local.which}"`} {
		b := "nodeset \"b\" {\n  hosts = " + hosts + "\n}\n"
		for _, text := range []string{locals + a + b, locals + b + a} {
			r, diags := loadBytes(append(minimalWith(t, "", ""), text...), Inputs{})
			if diags.HasErrors() || strings.Join(r.nodesets["b"], " ") != "gpu01 gpu02" {
				t.Errorf("%s: %v, %v", hosts, r.nodesets["b"], diags)
			}
		}
	}
	cycle := locals + "nodeset \"a\" {\n  hosts = \"@b\"\n}\nnodeset \"b\" {\n  hosts = \"@${local.which}\"\n}\n"
	if _, diags := loadBytes(append(minimalWith(t, "", ""), cycle...), Inputs{}); len(diags) != 1 || ruleOf(diags[0]) != RuleCycle {
		t.Errorf("a cycle: %v", diags)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"ceil", "floor", "format", "formatlist", "max", "min"}
	for given, want := range map[string]string{"ciel": "ceil", "flor": "floor", "fromat": "format", "mix": "max", "timestamp": "", "x": "", "": ""} {
		if got := nearest(given, names); got != want {
			t.Errorf("nearest to %q: %q, want %q", given, got, want)
		}
	}
}

func TestTrust(t *testing.T) {
	policy, _, diags := LoadTrust(os.DirFS("testdata"), "trust/valid.trust.hcl")
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if policy.Name != "customer" || len(policy.Keys) != 2 || len(policy.Roles) != 2 {
		t.Fatalf("policy %+v", policy)
	}
	if last := policy.Keys[0].NotAfter; last == nil || !last.Equal(time.Date(2027, 6, 30, 23, 59, 59, 0, time.UTC)) {
		t.Errorf("not after %v", last)
	}
	if policy.Keys[1].NotAfter != nil || policy.Keys[1].Owner != "fabric" || !strings.HasPrefix(string(policy.Keys[1].PEM), "-----BEGIN PUBLIC KEY-----") {
		t.Errorf("key %+v", policy.Keys[1])
	}
	if r := policy.Roles[1]; r.Name != "approver" || r.Quorum != 2 || strings.Join(r.AnyOf, " ") != "compute_lead fabric_lead" {
		t.Errorf("role %+v", r)
	}
	q := policy.Require
	if q.Level != attest.Attested || q.MaxAge.Std() != 30*24*time.Hour || len(q.Runbooks) != 1 || !q.Approved {
		t.Errorf("require %+v", q)
	}
	if policy.Accept != (attest.Accept{Simulated: true, Interrupted: 2}) {
		t.Errorf("accept %+v", policy.Accept)
	}
}

// TestTrustDefaults: what is not named is not accepted, and the level is the
// highest.
func TestTrustDefaults(t *testing.T) {
	key, err := os.ReadFile("testdata/trust/keys/compute.pub")
	if err != nil {
		t.Fatal(err)
	}
	src := "trust \"short\" {\n  key \"lead\" {\n    file  = \"k.pub\"\n    owner = \"x\"\n  }\n\n  role \"operator\" {\n    any_of = [key.lead]\n  }\n}\n"
	policy, _, diags := LoadTrust(fstest.MapFS{"t.hcl": {Data: []byte(src)}, "k.pub": {Data: key}}, "t.hcl")
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if policy.Require.Level != attest.Reproduced || policy.Require.Approved || policy.Require.MaxAge != 0 || policy.Accept != (attest.Accept{}) || policy.Roles[0].Quorum != 1 {
		t.Errorf("policy %+v", policy)
	}
	if _, files, diags := LoadTrust(fstest.MapFS{}, "t.hcl"); len(diags) != 1 || ruleOf(diags[0]) != RuleUnreadable || files == nil {
		t.Errorf("a missing policy: %v", diags)
	}
}
