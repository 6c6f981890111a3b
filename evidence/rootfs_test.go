package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
)

func rootFS(t *testing.T, files map[string]string) (*RootFS, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := NewRootFS(root)
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), root.Close()); err != nil {
			t.Error(err)
		}
	})
	return f, dir
}

// It is a file system like any other.
func TestRootFSIsOne(t *testing.T) {
	f, _ := rootFS(t, map[string]string{"a": "1", "b/c": "2", "b/d/e": "3"})
	if err := fstest.TestFS(f, "a", "b/c", "b/d/e"); err != nil {
		t.Fatal(err)
	}
}

func TestRootFSNamesWholePaths(t *testing.T) {
	f, _ := rootFS(t, map[string]string{"a/b/c": "x"})
	for _, name := range []string{"a/b/no", "a/no/c", "a/b/c/d"} {
		_, err := f.Open(name)
		var at *fs.PathError
		if !errors.As(err, &at) || at.Path != name {
			t.Errorf("open %s: %v", name, err)
		}
		if name != "a/b/c/d" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %s: %v is not fs.ErrNotExist", name, err)
		}
	}
	for _, name := range []string{"../a", "/a", "a//b", ""} {
		if _, err := f.Stat(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("stat %q: %v", name, err)
		}
	}
}

func TestRootFSFollowsNoLinkOut(t *testing.T) {
	f, dir := rootFS(t, map[string]string{"in/file": "x"})
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("in", filepath.Join(dir, "inside")); err != nil {
		t.Fatal(err)
	}
	if data, err := f.ReadFile("out/secret"); err == nil {
		t.Errorf("a link led out, to %q", data)
	}
	if data, err := f.ReadFile("inside/file"); err != nil || string(data) != "x" {
		t.Errorf("a link inside gives %q: %v", data, err)
	}
	if target, err := f.ReadLink("inside"); err != nil || target != "in" {
		t.Errorf("the link leads to %q: %v", target, err)
	}
}

// More directories than are kept, read by many at once.
func TestRootFSKeepsFewDirectories(t *testing.T) {
	files := make(map[string]string)
	for i := range 3 * rootDirs {
		files[fmt.Sprintf("d%03d/f", i)] = fmt.Sprint(i)
	}
	f, _ := rootFS(t, files)
	var group sync.WaitGroup
	for reader := range 8 {
		group.Go(func() {
			for i := range 3 * rootDirs {
				n := (i*7 + reader*31) % (3 * rootDirs)
				if data, err := f.ReadFile(fmt.Sprintf("d%03d/f", n)); err != nil || string(data) != fmt.Sprint(n) {
					t.Errorf("file %d has %q: %v", n, data, err)
				}
			}
		})
	}
	group.Wait()
	if len(f.dirs) > rootDirs || len(f.kept) != len(f.dirs) {
		t.Errorf("%d directories are open and %d listed, want at most %d", len(f.dirs), len(f.kept), rootDirs)
	}
}
