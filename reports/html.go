package reports

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"text/template/parse"

	"github.com/rackproof/rackproof/evidence"
)

// html is the html format: one file for whoever decides on a release. It needs
// no script and no network, and asks for neither.
type html struct{}

func (html) Name() string { return "html" }

func (html) Render(w io.Writer, b *evidence.Bundle) error {
	page, err := newHTMLPage(b)
	if err != nil {
		return err
	}
	document, err := parseHTML()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	if err := document.Execute(buffered, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return buffered.Flush()
}

//go:embed html.tmpl
var htmlText string

//go:embed html.css
var htmlStyle string

// parseHTML reads the page's template. The style is a template of its own, so
// that it stands in the page as it was written.
func parseHTML() (*template.Template, error) {
	document, err := template.New("page").Funcs(template.FuncMap{"printable": printable}).Parse(htmlText)
	if err != nil {
		return nil, err
	}
	if _, err := document.New("style").Parse(htmlStyle); err != nil {
		return nil, err
	}
	for _, t := range document.Templates() {
		escapeActions(t.Tree.Root)
	}
	return document, nil
}

// printable is the text of any value of the page, as Printable shows it.
func printable(v any) string { return Printable(fmt.Sprint(v)) }

// escapeActions ends every action below list that prints something with
// printable, so that no author of a template can forget it. html/template then
// adds its own escaping in the same way.
func escapeActions(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier("printable").SetPos(n.Pos)}}
				n.Pipe.Cmds = append(n.Pipe.Cmds, call)
			}
		case *parse.IfNode:
			escapeBranches(&n.BranchNode)
		case *parse.RangeNode:
			escapeBranches(&n.BranchNode)
		case *parse.WithNode:
			escapeBranches(&n.BranchNode)
		}
	}
}

func escapeBranches(n *parse.BranchNode) {
	escapeActions(n.List)
	escapeActions(n.ElseList)
}
