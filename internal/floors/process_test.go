package floors

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// processState is what only internal/cli and programs may touch: the rest of
// the house gets it as values, so that two runs in one process do not meet.
var processState = map[string][]string{
	"os":        {"Args", "Exit", "Getenv", "LookupEnv", "Environ", "Setenv", "Stdin", "Stdout", "Stderr"},
	"os/signal": {"Notify", "NotifyContext"},
	"log":       {"Fatal", "Fatalf", "Fatalln", "Print", "Printf", "Println"},
	"fmt":       {"Print", "Printf", "Println"},
	"context":   {"Background", "TODO"},
}

var processRooms = []string{"internal/cli/", "cmd/", "examples/", "internal/fuzzall/"}

// touches lists the uses of process state in one file.
func touches(file *ast.File) []string {
	imported := map[string]string{}
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = path
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if from, ok := selector.X.(*ast.Ident); ok && slices.Contains(processState[imported[from.Name]], selector.Sel.Name) {
			found = append(found, from.Name+"."+selector.Sel.Name)
		}
		return true
	})
	return found
}

func TestProcessStateStaysInTheCommandLine(t *testing.T) {
	root := filepath.Join("..", "..")
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() && (d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && name != ".") || name == "out") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			slices.ContainsFunc(processRooms, func(room string) bool { return strings.HasPrefix(name, room) }) {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		looked++
		for _, use := range touches(file) {
			t.Errorf("%s uses %s, which belongs to internal/cli and the programs", name, use)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 50 {
		t.Errorf("only %d files were looked at", looked)
	}
}

func TestProcessStateIsSeen(t *testing.T) {
	text := `package p
import ("context"; "os"; stop "os/signal")
func f() { _ = os.Getenv("HOME"); _ = context.Background(); stop.Notify(nil); _, _ = os.Open("x") }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(touches(file)), "[os.Getenv context.Background stop.Notify]"; got != want {
		t.Errorf("touches = %s, want %s", got, want)
	}
}
