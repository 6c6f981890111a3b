package verify

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/evidence/attest"
)

// rawPack packs whatever is in dir, as someone would who does not use our
// writer.
func rawPack(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "run.tar.zst")
	file, err := os.Create(name)
	must(t, err)
	compressor, err := zstd.NewWriter(file, zstd.WithWindowSize(8<<20))
	must(t, err)
	writer := tar.NewWriter(compressor)
	var paths []string
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, p)
		}
		return err
	}))
	order := []string{evidence.SignaturePath, evidence.ManifestPath, evidence.SumsPath, "run/", "cells/", ""}
	rank := func(p string) int {
		return slices.IndexFunc(order, func(prefix string) bool { return strings.HasPrefix(p, prefix) })
	}
	slices.SortStableFunc(paths, func(a, b string) int { return rank(a) - rank(b) })
	for _, p := range paths {
		info, err := os.Lstat(filepath.Join(dir, p))
		must(t, err)
		header := &tar.Header{Name: p, Typeflag: tar.TypeReg, Size: info.Size(), Mode: 0o644, Format: tar.FormatUSTAR}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(filepath.Join(dir, p))
			must(t, err)
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, target, 0
			must(t, writer.WriteHeader(header))
			continue
		}
		must(t, writer.WriteHeader(header))
		data, err := os.ReadFile(filepath.Join(dir, p))
		must(t, err)
		_, err = writer.Write(data)
		must(t, err)
	}
	must(t, writer.Close())
	must(t, compressor.Close())
	must(t, file.Close())
	return name
}

func TestDamagedArchives(t *testing.T) {
	good := newRig(t, small, nil)
	if report := verifyPath(t, rawPack(t, good.dir), good.options()); report.Exit != 0 {
		t.Fatalf("an archive of another writer: exit %d, %q", report.Exit, codes(report))
	}
	edit := func(change func([]byte) []byte) func(*testing.T, rig) string {
		return func(t *testing.T, r rig) string {
			name := pack(t, r.dir)
			data, err := os.ReadFile(name)
			must(t, err)
			must(t, os.WriteFile(name, change(data), 0o644))
			return name
		}
	}
	for _, c := range []struct {
		name       string
		pack       func(*testing.T, rig) string
		code, path string
	}{
		{"file added", func(t *testing.T, r rig) string { r.write(t, "run/extra", []byte("x")); return rawPack(t, r.dir) }, archive.CodeExtra, "run/extra"},
		{"hidden file added", func(t *testing.T, r rig) string { r.write(t, ".hidden", []byte("x")); return rawPack(t, r.dir) }, archive.CodePath, ".hidden"},
		{"link", func(t *testing.T, r rig) string {
			must(t, os.Remove(r.path(rawFile)))
			must(t, os.Symlink("/etc/passwd", r.path(rawFile)))
			return rawPack(t, r.dir)
		}, archive.CodeType, rawFile},
		{"file removed", func(t *testing.T, r rig) string { must(t, os.Remove(r.path(rawFile))); return rawPack(t, r.dir) }, attest.CodeFileMissing, rawFile},
		{"file grown", func(t *testing.T, r rig) string {
			r.write(t, rawFile, []byte(strings.Repeat("rate 42.5\n", 100)))
			return rawPack(t, r.dir)
		}, archive.CodeLimit, rawFile},
		{"manifest removed", func(t *testing.T, r rig) string {
			must(t, os.Remove(r.path(evidence.ManifestPath)))
			return rawPack(t, r.dir)
		}, archive.CodeOrder, evidence.SumsPath},
		{"cut short", edit(func(b []byte) []byte { return b[:len(b)/2] }), archive.CodeFormat, ""},
		{"data after the end", edit(func(b []byte) []byte { return append(b, "more"...) }), archive.CodeTrailing, ""},
		{"no archive", edit(func([]byte) []byte { return []byte("not an archive") }), archive.CodeFormat, ""},
		{"empty", edit(func([]byte) []byte { return nil }), archive.CodeFormat, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			name := c.pack(t, good.copied(t))
			report := verifyPath(t, name, good.options())
			damage{code: c.code, path: c.path}.check(t, report)
			left, err := filepath.Glob(filepath.Join(temp, "rackproof-bundle-*"))
			must(t, err)
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestUnsignedLimits(t *testing.T) {
	manifest := func(sizes ...int64) []byte {
		var out strings.Builder
		out.WriteString(`{"mediaType":"` + evidence.MediaManifest + `","minor":0,"files":[` + "\n")
		for i, size := range sizes {
			line, err := evidence.EncodeLine(evidence.ManifestEntry{
				Path: "run/" + string(rune('a'+i)), Size: size, SHA256: strings.Repeat("0", 64), Role: "other", Salt: strings.Repeat("0", 32),
			})
			must(t, err)
			out.Write(line[:len(line)-1])
			if i < len(sizes)-1 {
				out.WriteString(",")
			}
			out.WriteString("\n")
		}
		out.WriteString("]}\n")
		return []byte(out.String())
	}
	for _, c := range []struct {
		name  string
		sizes []int64
		ok    bool
	}{
		{"small", []int64{1, 2}, true},
		{"exactly the bound", []int64{maxUnsignedBytes}, true},
		{"one over", []int64{maxUnsignedBytes, 1}, false},
		{"overflow", []int64{1 << 62, 1 << 62}, false},
	} {
		got, err := UnsignedLimits(nil, manifest(c.sizes...), nil)
		if (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if c.ok && got.Files != len(c.sizes)+besideFiles {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
