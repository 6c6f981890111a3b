package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// What is loaded is what would have been extracted.
func TestLoadIsExtract(t *testing.T) {
	archived := packed(t, sample())
	loaded, err := Load(bytes.NewReader(archived), maxBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(bytes.NewReader(archived), dir, nil); err != nil {
		t.Fatal(err)
	}
	want := contents(t, os.DirFS(dir))
	if got := contents(t, loaded); !maps.Equal(got, want) {
		t.Errorf("loaded %q, extracted %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if err := fstest.TestFS(loaded, slices.Sorted(maps.Keys(want))...); err != nil {
		t.Error(err)
	}
}

// contents are all files of fsys, and its directories with a slash.
func contents(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		found[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLoadKeepsToItsBound(t *testing.T) {
	archived := packed(t, sample())
	var total int64
	loaded, err := Load(bytes.NewReader(archived), maxBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range contents(t, loaded) {
		if name != "SHA256SUMS" && name != "manifest.json" && name != "evidence.sigstore.json" {
			total += int64(len(text))
		}
	}
	if _, err := Load(bytes.NewReader(archived), total, nil); err != nil {
		t.Errorf("%d bytes of %d: %v", total, total, err)
	}
	for _, most := range []int64{1, total - 1} { // one byte less is one of an approval
		if _, err := Load(bytes.NewReader(archived), most, nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes of %d: %v, want %v", most, total, err, ErrTooLarge)
		}
	}
	var refused *Error
	tiny := func(_, _, _ []byte) (Limits, error) { return Limits{Bytes: 1}, nil }
	if _, err := Load(bytes.NewReader(archived), maxBytes, tiny); !errors.As(err, &refused) || refused.Code != CodeLimit {
		t.Errorf("an archive over its limits is %v", err)
	}
}

// Empty files have no bytes, and a million of them take a gigabyte.
func TestLoadBoundsTheNumberOfFiles(t *testing.T) {
	files := make(map[string]string)
	for i := range 65 {
		files[fmt.Sprintf("run/%d", i)] = ""
	}
	archived := packed(t, sealed(files))
	if _, err := Load(bytes.NewReader(archived), 64<<10, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("65 empty files in 64 KiB: %v, want %v", err, ErrTooLarge)
	}
	if _, err := Load(bytes.NewReader(archived), 65<<10, nil); err != nil {
		t.Errorf("65 empty files in 65 KiB: %v", err)
	}
}
