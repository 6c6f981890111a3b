package reports

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// hostileMarkdown is text that means something to a renderer of Markdown, or
// to the forges that look at what was rendered.
var hostileMarkdown = []string{
	"@admin, see !12, #34, &5, ~label, %milestone and $6",
	"[click](https://evil.example) https://evil.example www.evil.example a@evil.example",
	"![x](https://evil.example/x.png) <img src=https://evil.example/x.png>",
	"</code></td></table><script>alert(1)</script><!--",
	"a | b || c \\| d \\",
	"`code` `` more `` ``` \\`",
	"`@admin`",
	"\n# Acceptance: PASS\n\n| a | b |\n",
	"$`x`$ **bold** _it_ ~~no~~ &lt;b&gt; \\* <b>",
	"- [x] done",
	"\x1b[31m\u202e\x00\xff",
}

// spread puts text wherever a bundle may have text of others.
func spread(text string) *evidence.Bundle {
	b := open()
	p, v := b.Plan, b.Verdict
	b.Run, p.Name, p.Title, p.Version, p.Executor, p.Fleet.Name = text, text, text, text, text, text
	p.Narrowed, p.Variables[0].Name = []string{text}, text
	p.Quorums[0].Name, p.Quorums[0].Of = text, text
	b.Tool.Version = text
	p.Tests[0].Establishes[0].Sentence, p.Tests[0].DoesNotEstablish[0], p.Tests[0].Owner = text, text, text
	p.Tests[0].Thresholds[0].Unit, p.Tests[0].Thresholds[0].Basis = text, text
	p.Tests[1].Thresholds[0].Equals = &text
	for i := range v.Findings {
		f := &v.Findings[i]
		f.Reason, f.Node, f.Source, f.Unit, f.Class, f.Subject = text, text, text, text, evidence.Class(text), evidence.Subject(text)
	}
	v.Findings[5].Text = text
	v.Coverage.Open[0] = evidence.OpenCell{Cell: text, Attempt: 1, Problem: evidence.Problem{Node: text, Step: text, Class: evidence.Class(text), Detail: text}}
	v.Coverage.Retried = []string{text}
	v.Gates[0].Phase, v.Gates[0].Reason, v.Gates[0].Failing = text, text, []string{text, text}
	v.Releases[0].Release, v.Releases[0].Reason = text, text
	return b
}

var codeSpan = regexp.MustCompile("`[^`|\n]+`")

// outside is what a renderer looks at: the document without its code spans.
// The text between two backticks is always one span, because no span holds a
// backtick, and a table's cells are cut where no span is, because none holds a
// pipe.
func outside(t *testing.T, b *evidence.Bundle) string {
	t.Helper()
	var out bytes.Buffer
	if err := (markdown{}).Render(&out, b); err != nil {
		t.Fatal(err)
	}
	rest := codeSpan.ReplaceAllString(out.String(), "C")
	if strings.Contains(rest, "`") {
		t.Errorf("a backtick is outside of the spans:\n%s", out.String())
	}
	return rest
}

// Whatever the text, what is outside of the code spans is the same document.
func TestMarkdownTextIsOnlyCode(t *testing.T) {
	want := outside(t, spread("harmless"))
	for _, text := range hostileMarkdown {
		if got := outside(t, spread(text)); got != want {
			t.Errorf("%q changes the document:\n%s\nwant\n%s", text, got, want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, text := range hostileMarkdown {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		if got, want := outside(t, spread(text)), outside(t, spread("harmless")); got != want {
			t.Fatalf("%q changes the document:\n%s\nwant\n%s", text, got, want)
		}
	})
}

func TestMarkdownCode(t *testing.T) {
	long := strings.Repeat("数", maxCode+1)
	for in, want := range map[string]mark{
		"":        "-",
		" ":       "-",
		"a":       "`a`",
		"a`b|c":   "`a\\u0060b\\u007cc`",
		"x\ny":    "`x\\ny`",
		"\u00a0":  "-",
		long:      mark("`" + strings.Repeat("数", maxCode) + " ...`"),
		long[:90]: mark("`" + long[:90] + "`"),
	} {
		if got := code(in); got != want {
			t.Errorf("code(%q) = %s, want %s", in, got, want)
		}
	}
}

// The verdict is the first line, and what limits it follows at once.
func TestMarkdownBeginsWithTheVerdict(t *testing.T) {
	var out bytes.Buffer
	if err := (markdown{}).Render(&out, open()); err != nil {
		t.Fatal(err)
	}
	want := "# Acceptance: FAIL — 1 OF 2 NODES SIMULATED, NOT REAL MACHINES; SHARED MACHINE; OFF CONTRACT; NARROWED; NOT SEALED\n\n- **!** `simulated: nodes of this run are not real machines`\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("it begins with\n%s", out.String()[:200])
	}
	if verdict, verify := strings.Index(out.String(), "# Acceptance"), strings.Index(out.String(), "**Not verified**"); verify < verdict || verify > strings.Index(out.String(), "## Coverage") {
		t.Errorf("how to verify stands at %d", verify)
	}
}

// A fail may not be the row that a bounded table leaves out.
func TestMarkdownShowsTheWorstFirst(t *testing.T) {
	b := open()
	b.Verdict.Findings = nil
	for i := range 500 {
		b.Verdict.Findings = append(b.Verdict.Findings, evidence.Finding{Test: "reads", Threshold: "iops", Subject: evidence.Subject(fmt.Sprintf("gpu%03d", i)), Outcome: evidence.Inconclusive})
	}
	b.Verdict.Findings[499].Outcome = evidence.Fail
	b.Verdict.Findings[498].Outcome = evidence.Error
	var out bytes.Buffer
	if err := (markdown{}).Render(&out, b); err != nil {
		t.Fatal(err)
	}
	_, points, _ := strings.Cut(out.String(), "## Open points: 500\n")
	rows := strings.Split(points, "\n")[3:]
	for i, want := range []string{"| **FAIL** | `reads` | `iops` | `gpu499` |", "| **ERROR** | `reads` | `iops` | `gpu498` |", "| **INCONCLUSIVE** | `reads` | `iops` | `gpu000` |"} {
		if !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d: %s, want %s", i, rows[i], want)
		}
	}
	if rows[maxRows] != "" || rows[maxRows+1] != "and 400 more: `rackproof report PATH` shows all." {
		t.Errorf("after %d rows: %q", maxRows, rows[maxRows:maxRows+2])
	}
}
