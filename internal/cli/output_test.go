package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A file has its name only once it is whole.
func TestWriteNewIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	full := errors.New("no space left on device")
	err := writeNew(path, 0o600, func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file has its name before it is whole: %v", err)
		}
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := writeNew(path, 0o600, writeBytes([]byte("whole"))); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 5 || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want 5 bytes of mode 0600", info, err)
	}
	if left := names(t, dir); len(left) != 1 || left[0] != "out" {
		t.Errorf("the directory holds %q, want only out", left)
	}
}

func TestWriteNewNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	appear := func(w io.Writer) error {
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			return err
		}
		_, err := w.Write([]byte("theirs"))
		return err
	}
	for name, fill := range map[string]func(io.Writer) error{
		"appeared meanwhile": appear,
		"was there":          func(io.Writer) error { t.Error("filled for a name that is taken"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "appeared meanwhile" {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := writeNew(path, 0o644, fill); exitOf(err) != ExitUsage {
				t.Errorf("exit %d, want %d: %v", exitOf(err), ExitUsage, err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
				t.Errorf("the file holds %q, %v", data, err)
			}
			if left := names(t, dir); len(left) != 1 {
				t.Errorf("the directory holds %q, want one file", left)
			}
		})
	}
}

// What a killed process of the same id has left is not in the way.
func TestWriteNewPassesByALeftPart(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, fmt.Sprintf(".out.%d-0.part", os.Getpid()))
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(filepath.Join(dir, "out"), 0o600, writeBytes([]byte("whole"))); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 2 || got[1] != "out" {
		t.Errorf("the directory holds %q", got)
	}
}
