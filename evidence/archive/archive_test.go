package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rackproof/rackproof/evidence"
)

const salt = "00112233445566778899aabbccddeeff"

// sealed is a run directory as Seal leaves it, as far as an archive looks.
func sealed(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	var manifest, sums []string
	for _, p := range slices.Sorted(maps.Keys(files)) {
		fsys[p] = &fstest.MapFile{Data: []byte(files[p])}
		if evidence.Unlisted(p) {
			continue
		}
		sum := sha256.Sum256([]byte(files[p]))
		manifest = append(manifest, fmt.Sprintf(`{"path":%q,"size":%d,"sha256":"%x","role":"x","salt":%q}`, p, len(files[p]), sum, salt))
		sums = append(sums, hex.EncodeToString(sum[:])+"  "+p+"\n")
	}
	text := `{"mediaType":"` + evidence.MediaManifest + `","minor":0,"files":[` + "\n"
	if len(manifest) > 0 {
		text += strings.Join(manifest, ",\n") + "\n"
	}
	fsys[evidence.ManifestPath] = &fstest.MapFile{Data: []byte(text + "]}\n")}
	fsys[evidence.SumsPath] = &fstest.MapFile{Data: []byte(strings.Join(sums, ""))}
	return fsys
}

func sample() fstest.MapFS {
	return sealed(map[string]string{
		"run/plan.json":                           "{}\n",
		"run/journal.jsonl":                       strings.Repeat("line\n", 5000),
		"cells/disk/n1.r1/1/raw/fio.n1/stdout":    "one\n",
		"cells/disk/n1.r1/1/raw/fio.n1/stderr":    "",
		"captures/bare/start/n1/uname/stdout":     "Linux\n",
		evidence.SignaturePath:                    "signature",
		"approvals/01-ops-00aa11bb.sigstore.json": "approval",
		"cells/" + strings.Repeat("t", 64) + "/" + strings.Repeat("n", 70) + ".r1/1/raw/" + strings.Repeat("s", 90) + "/exit.json": "{}",
	})
}

func packed(t testing.TB, fsys fs.FS) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, fsys, time.Date(2026, 11, 30, 14, 2, 11, 7, time.UTC)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// content reads every file of a directory.
func content(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := evidence.Walk(fsys, func(p string, _ int64) error {
		data, err := fs.ReadFile(fsys, p)
		files[p] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRoundTrip(t *testing.T) {
	fsys := sample()
	archived := packed(t, fsys)
	if !bytes.Equal(archived, packed(t, fsys)) {
		t.Error("the same run gives other bytes")
	}
	dir := t.TempDir()
	var heads [][]byte
	err := Extract(bytes.NewReader(archived), dir, func(bundle, manifest, sums []byte) (Limits, error) {
		heads = [][]byte{bundle, manifest, sums}
		return Limits{Files: 100, Bytes: 1 << 20, FileBytes: 1 << 20, HeadBytes: 1 << 20}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, os.DirFS(dir)), content(t, fsys); !maps.Equal(got, want) {
		t.Errorf("unpacked %d files, want %d", len(got), len(want))
	}
	for i, p := range []string{evidence.SignaturePath, evidence.ManifestPath, evidence.SumsPath} {
		if !bytes.Equal(heads[i], fsys[p].Data) {
			t.Errorf("head %d is not %s", i, p)
		}
	}
	unsigned := sample()
	delete(unsigned, evidence.SignaturePath)
	err = Extract(bytes.NewReader(packed(t, unsigned)), t.TempDir(), func(bundle, _, _ []byte) (Limits, error) {
		if bundle != nil {
			t.Errorf("a signature %q of an unsigned run", bundle)
		}
		return Limits{}, nil
	})
	if err != nil {
		t.Errorf("an unsigned run: %v", err)
	}
}

func TestMembers(t *testing.T) {
	z, err := zstd.NewReader(bytes.NewReader(packed(t, sample())))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Mode != 0o644 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.Format != tar.FormatUSTAR || h.Typeflag != tar.TypeReg || h.ModTime.Unix() != 1796047331 {
			t.Errorf("header %+v", h)
		}
	}
	long := "cells/" + strings.Repeat("t", 64) + "/" + strings.Repeat("n", 70) + ".r1/1/raw/" + strings.Repeat("s", 90) + "/exit.json"
	want := []string{
		"evidence.sigstore.json", "manifest.json", "SHA256SUMS", "approvals/01-ops-00aa11bb.sigstore.json",
		"run/journal.jsonl", "run/plan.json",
		"cells/disk/n1.r1/1/raw/fio.n1/stderr", "cells/disk/n1.r1/1/raw/fio.n1/stdout", long,
		"captures/bare/start/n1/uname/stdout",
	}
	if !slices.Equal(names, want) {
		t.Errorf("members\n%q, want\n%q", names, want)
	}
}

// TestStockTools demands that tar, zstd and sha256sum are enough.
func TestStockTools(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "run"+Suffix)
	if err := os.WriteFile(name, packed(t, sample()), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"tar", "--zstd", "-xf", name},
		{"sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"},
	} {
		command := exec.Command(argv[0], argv[1:]...)
		command.Dir = out
		if text, err := command.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", argv, err, text)
		}
	}
	if got, want := content(t, os.DirFS(out)), content(t, sample()); !maps.Equal(got, want) {
		t.Errorf("tar unpacked %d files, want %d", len(got), len(want))
	}
}

func TestWriteRefuses(t *testing.T) {
	unsealed := sample()
	delete(unsealed, evidence.ManifestPath)
	link := sample()
	link["run/link"] = &fstest.MapFile{Data: []byte("plan.json"), Mode: fs.ModeSymlink}
	hidden := sample()
	hidden[".lock"] = &fstest.MapFile{}
	for name, tc := range map[string]struct {
		fsys fs.FS
		want string
	}{
		"unsealed": {unsealed, "not sealed"},
		"link":     {link, "symbolic link"},
		"hidden":   {hidden, ".lock"},
	} {
		if err := Write(io.Discard, tc.fsys, time.Time{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if err := Write(io.Discard, sample(), time.Time{}); err != nil {
		t.Errorf("no time: %v", err)
	}
}

// entry is one member of a hand-made archive.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644, Format: tar.FormatUSTAR}, body}
}

func special(name string, typeflag byte, link string) entry {
	return entry{tar.Header{Typeflag: typeflag, Name: name, Linkname: link, Mode: 0o644, Format: tar.FormatUSTAR}, ""}
}

func pack(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compress(t testing.TB, data []byte, o ...zstd.EOption) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(data, nil)
}

// head is what every archive of the hostile table begins with.
func head(files map[string]string) []entry {
	fsys := sealed(files)
	return []entry{
		file(evidence.ManifestPath, string(fsys[evidence.ManifestPath].Data)),
		file(evidence.SumsPath, string(fsys[evidence.SumsPath].Data)),
	}
}

func TestExtractRefuses(t *testing.T) {
	files := map[string]string{"run/a": "aaaa", "run/b": "bbbb", "cells/x": "xxxx", "run/zero": strings.Repeat("\x00", 1<<20)}
	a, b, x := file("run/a", "aaaa"), file("run/b", "bbbb"), file("cells/x", "xxxx")
	with := func(more ...entry) []byte { return compress(t, pack(t, append(head(files), more...))) }
	good := pack(t, append(head(files), a, b, x))
	noLimits := func(_, _, _ []byte) (Limits, error) { return Limits{}, nil }
	limits := func(l Limits) func(_, _, _ []byte) (Limits, error) {
		return func(_, _, _ []byte) (Limits, error) { return l, nil }
	}
	pax := file("run/a", "aaaa")
	pax.Format, pax.PAXRecords = tar.FormatPAX, map[string]string{"comment": "path"}
	gnu := file("run/"+strings.Repeat("a", 200), "aaaa")
	gnu.Format = tar.FormatGNU
	setuid := file("run/a", "aaaa")
	setuid.Mode = 0o4755
	wide := make([]byte, 32<<20)
	// Magic number, size and content of a frame that decoders pass over
	// (RFC 8878, section 3.1.2).
	skipped := []byte("\x50\x2a\x4d\x18\x06\x00\x00\x00hidden")
	emptySkipped := []byte("\x5f\x2a\x4d\x18\x00\x00\x00\x00")
	reserved := compress(t, good)
	reserved[frameHeader(t, reserved)] |= 3 << 1
	for name, tc := range map[string]struct {
		data []byte
		head func(_, _, _ []byte) (Limits, error)
		code string
		want string
	}{
		"nothing":              {nil, noLimits, CodeFormat, "before its evidence.sigstore.json"},
		"no zstd":              {good, noLimits, CodeFormat, ""},
		"zstd of garbage":      {compress(t, bytes.Repeat([]byte("garbage "), 200)), noLimits, CodeFormat, ""},
		"cut":                  {compress(t, good)[:200], noLimits, CodeFormat, ""},
		"cut tar":              {compress(t, good[:len(good)-1024-512]), noLimits, CodeFormat, ""},
		"no end mark":          {compress(t, good[:len(good)-1024]), noLimits, CodeFormat, "cut off"},
		"half an end mark":     {compress(t, good[:len(good)-512]), noLimits, CodeFormat, "cut off"},
		"window":               {compress(t, append(slices.Clone(good), wide...), zstd.WithWindowSize(16<<20)), noLimits, CodeFormat, ""},
		"trailing data":        {append(compress(t, good), "garbage"...), noLimits, CodeTrailing, ""},
		"trailing in the tar":  {compress(t, append(slices.Clone(good), "hidden"...)), noLimits, CodeTrailing, "data after its end"},
		"trailing member":      {compress(t, append(slices.Clone(good), good...)), noLimits, CodeTrailing, "data after its end"},
		"second frame":         {append(compress(t, good), compress(t, []byte("hidden"))...), noLimits, CodeTrailing, "data after its end"},
		"empty second frame":   {append(compress(t, good), compress(t, nil, zstd.WithZeroFrames(true))...), noLimits, CodeTrailing, "data after its end"},
		"frame in two":         {append(compress(t, good[:700]), compress(t, good[700:])...), noLimits, CodeFormat, ""},
		"skipped at the end":   {append(compress(t, good), skipped...), noLimits, CodeTrailing, "data after its end"},
		"nothing skipped":      {append(compress(t, good), emptySkipped...), noLimits, CodeTrailing, "data after its end"},
		"skipped at the start": {append(slices.Clone(skipped), compress(t, good)...), noLimits, CodeFormat, "made to be skipped"},
		"skipped only":         {skipped, noLimits, CodeFormat, "made to be skipped"},
		"empty frame first":    {append(compress(t, nil, zstd.WithZeroFrames(true)), compress(t, good)...), noLimits, CodeFormat, "before its evidence.sigstore.json"},
		"one byte more":        {append(compress(t, good), 0), noLimits, CodeTrailing, "data after its end"},
		"one byte less":        {compress(t, good)[:len(compress(t, good))-1], noLimits, CodeFormat, ""},
		"reserved block":       {reserved, noLimits, CodeFormat, "reserved"},
		"endless zeros":        {compress(t, append(slices.Clone(good), make([]byte, 1<<20)...)), noLimits, CodeTrailing, "data after its end"},
		"no head":              {compress(t, pack(t, []entry{a})), noLimits, CodeOrder, "begins with signature"},
		"head reversed":        {compress(t, pack(t, []entry{head(files)[1], head(files)[0]})), noLimits, CodeOrder, "begins with signature"},
		"late signature":       {with(a, file(evidence.SignaturePath, "x")), noLimits, CodeOrder, "after run/a"},
		"manifest twice":       {with(head(files)[0]), noLimits, CodeDuplicate, "twice"},
		"manifest unreadable":  {compress(t, pack(t, []entry{file(evidence.ManifestPath, "{}"), head(files)[1]})), noLimits, CodeManifest, "manifest line 1"},
		"sums unreadable":      {compress(t, pack(t, []entry{head(files)[0], file(evidence.SumsPath, "x\n")})), noLimits, CodeManifest, "sums line 1"},
		"order":                {with(b, a), noLimits, CodeOrder, "after run/b"},
		"order of folders":     {with(x, a), noLimits, CodeOrder, "after cells/x"},
		"twice":                {with(a, a), noLimits, CodeDuplicate, "twice"},
		"file below a file":    {with(a, file("run/a/b", "")), noLimits, CodeDuplicate, "run/a is a file"},
		"directory on a file":  {with(a, special("run/a/", tar.TypeDir, "")), noLimits, CodeDuplicate, "is a file"},
		"directory below one":  {with(a, special("run/a/b/", tar.TypeDir, "")), noLimits, CodeDuplicate, "run/a is a file"},
		"file on a directory":  {with(special("run/a/", tar.TypeDir, ""), a), noLimits, CodeDuplicate, "twice"},
		"symbolic link":        {with(special("run/a", tar.TypeSymlink, "/etc/passwd")), noLimits, CodeType, "only plain files"},
		"hard link":            {with(a, special("run/b", tar.TypeLink, "run/a")), noLimits, CodeType, "only plain files"},
		"device":               {with(special("run/a", tar.TypeChar, "")), noLimits, CodeType, "only plain files"},
		"block device":         {with(special("run/a", tar.TypeBlock, "")), noLimits, CodeType, "only plain files"},
		"fifo":                 {with(special("run/a", tar.TypeFifo, "")), noLimits, CodeType, "only plain files"},
		"pax name":             {with(pax), noLimits, CodeType, "without extensions"},
		"gnu long name":        {with(gnu), noLimits, CodeType, "without extensions"},
		"setuid":               {with(setuid), noLimits, CodeType, "more than permissions"},
		"up":                   {with(file("../a", "")), noLimits, CodePath, "dot"},
		"up inside":            {with(file("run/../../a", "")), noLimits, CodePath, "dot"},
		"absolute":             {with(file("/etc/passwd", "")), noLimits, CodePath, "empty"},
		"backslash":            {with(file(`run\a`, "")), noLimits, CodePath, "not one of"},
		"drive":                {with(file("c:a", "")), noLimits, CodePath, "not one of"},
		"upper":                {with(file("run/A", "")), noLimits, CodePath, "not one of"},
		"device name":          {with(file("run/nul", "")), noLimits, CodePath, "device"},
		"hidden":               {with(file("run/.a", "")), noLimits, CodePath, "dot"},
		"directory up":         {with(special("../x/", tar.TypeDir, "")), noLimits, CodePath, "dot"},
		"not listed":           {with(file("run/c", "")), noLimits, CodeExtra, "does not list"},
		"approval elsewhere":   {with(file("approvals/x", "")), noLimits, CodeExtra, "does not list"},
		"larger than listed":   {with(file("run/a", "aaaaa")), noLimits, CodeLimit, "5 bytes, and the manifest says 4"},
		"too many files":       {with(a, b, x), limits(Limits{Files: 4}), CodeLimit, "more than 4 files"},
		"too many directories": {with(a, special("x1/", tar.TypeDir, ""), special("x2/", tar.TypeDir, ""), special("x3/", tar.TypeDir, "")), limits(Limits{Files: 3}), CodeLimit, "more than 3 directories"},
		"too many bytes":       {with(a, b, x), limits(Limits{Bytes: 11}), CodeLimit, "limit of 11 bytes"},
		"too large a file":     {with(a, b, x), limits(Limits{FileBytes: 3}), CodeLimit, "limit of 3 for one file"},
		"too large a head":     {with(a, b, x), limits(Limits{HeadBytes: 3}), CodeLimit, "limit of 3"},
		"bomb":                 {with(file("run/zero", files["run/zero"])), limits(Limits{Bytes: 1 << 16}), CodeLimit, "limit of 65536"},
		"large signature":      {compress(t, pack(t, []entry{file(evidence.SignaturePath, string(make([]byte, 17<<20)))})), noLimits, CodeLimit, "over the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "out")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Extract(bytes.NewReader(tc.data), dir, tc.head)
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v (%+v), want %s %q", err, refused, tc.code, tc.want)
			}
			if list, err := os.ReadDir(parent); err != nil || len(list) != 1 {
				t.Errorf("files outside: %v, %v", list, err)
			}
		})
	}
	if err := Extract(bytes.NewReader(compress(t, good)), t.TempDir(), nil); err != nil {
		t.Errorf("what the table is made of: %v", err)
	}
}

// blocks are so many bytes of blocks that a reader of tar passes over by
// itself or that nothing bounds, one after another.
type blocks struct {
	block []byte
	left  int64
}

func (b *blocks) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n+len(b.block) <= len(p) && b.left > 0 {
		n += copy(p[n:], b.block)
		b.left -= int64(len(b.block))
	}
	return n, nil
}

// A few kilobytes of zstd hold gigabytes of members that are no files.
func TestExtractEndsAFloodOfMembers(t *testing.T) {
	header := func(h tar.Header) []byte {
		var b bytes.Buffer
		if err := tar.NewWriter(&b).WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	begin := pack(t, head(map[string]string{"run/a": "aaaa"}))
	begin = begin[:len(begin)-endMark]
	long := header(tar.Header{Typeflag: tar.TypeReg, Name: "run/" + strings.Repeat("a", 200), Mode: 0o644, Format: tar.FormatGNU})
	for name, block := range map[string][]byte{
		"directories": header(tar.Header{Typeflag: tar.TypeDir, Name: "run/", Mode: 0o755, Format: tar.FormatUSTAR}),
		"long names":  long[:len(long)-512],
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			defer r.Close()
			go func() {
				z, err := zstd.NewWriter(w, zstd.WithWindowSize(windowSize), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
				if err == nil {
					_, err = io.CopyBuffer(z, io.MultiReader(bytes.NewReader(begin), &blocks{block, 1 << 31}), make([]byte, 1<<20))
					err = errors.Join(err, z.Close())
				}
				w.CloseWithError(err)
			}()
			few := func(_, _, _ []byte) (Limits, error) { return Limits{Files: 100, Bytes: 1 << 10}, nil }
			var refused *Error
			if _, err := Load(r, maxBytes, few); !errors.As(err, &refused) || refused.Code != CodeLimit {
				t.Errorf("%v, want %s", err, CodeLimit)
			}
		})
	}
}

func TestHeadStopsExtraction(t *testing.T) {
	dir := t.TempDir()
	untrusted := errors.New("untrusted")
	err := Extract(bytes.NewReader(packed(t, sample())), dir, func(_, _, _ []byte) (Limits, error) { return Limits{}, untrusted })
	if !errors.Is(err, untrusted) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("files were written: %v, %v", list, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Extract(bytes.NewReader(packed(t, sample())), dir, nil); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a directory that is not empty: %v", err)
	}
}

// frameHeader is the length of the header of a zstd frame: its first block
// header comes next.
func frameHeader(t testing.TB, frame []byte) int {
	t.Helper()
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		t.Fatal(err)
	}
	return h.HeaderSize
}

// TestExtractTakesOneFrame: what other tools write is one frame too, with more
// than one thread, with blocks of every type, and with or without a checksum
// and the content's size.
func TestExtractTakesOneFrame(t *testing.T) {
	noise := make([]byte, 3<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"run/noise": string(noise),
		"run/text":  strings.Repeat("a line of text\n", 1<<18),
		"run/zero":  strings.Repeat("\x00", 3<<20),
	}
	entries := head(files)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, file(name, files[name]))
	}
	plain := pack(t, entries)
	takes := func(t *testing.T, archived []byte) {
		t.Helper()
		dir := t.TempDir()
		if err := Extract(iotest.HalfReader(bytes.NewReader(archived)), dir, nil); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
				t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(text), err)
			}
		}
	}
	for _, argv := range [][]string{
		{"zstd", "-q"}, {"zstd", "-q", "-T0", "-1"}, {"zstd", "-q", "-T2", "-B512KiB"}, {"zstd", "-q", "--no-check"},
		{"zstd", "-q", "--stream-size=" + fmt.Sprint(len(plain))},
	} {
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			command := exec.Command(argv[0], argv[1:]...)
			command.Stdin = bytes.NewReader(plain)
			archived, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			takes(t, archived)
		})
	}
	t.Run("one segment", func(t *testing.T) {
		small := pack(t, append(head(map[string]string{"run/a": "aaaa"}), file("run/a", "aaaa")))
		if err := Extract(bytes.NewReader(compress(t, small, zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))), t.TempDir(), nil); err != nil {
			t.Error(err)
		}
	})
}

// TestExtractTakesDirectories: GNU tar writes them, and pads to 20 blocks.
func TestExtractTakesDirectories(t *testing.T) {
	plain := pack(t, append(head(map[string]string{"run/a": "aaaa"}), special("run/", tar.TypeDir, ""), file("run/a", "aaaa")))
	padded := append(plain, make([]byte, 10240-len(plain)%10240)...)
	dir := t.TempDir()
	if err := Extract(bytes.NewReader(compress(t, padded)), dir, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "run/a")); err != nil || string(text) != "aaaa" {
		t.Errorf("%q, %v", text, err)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(packed(f, sample()))
	files := map[string]string{"run/a": "aaaa"}
	f.Add(pack(f, append(head(files), file("run/a", "aaaa"))))
	f.Add(pack(f, append(head(files), special("run/a", tar.TypeSymlink, "/etc/passwd"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		for i, packed := range [][]byte{data, compress(t, data)} {
			dir := filepath.Join(parent, fmt.Sprint(i))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Extract(bytes.NewReader(packed), dir, func(_, _, _ []byte) (Limits, error) {
				return Limits{Files: 100, Bytes: 1 << 20}, nil
			})
			if err != nil {
				var refused *Error
				if !errors.As(err, &refused) {
					t.Fatalf("an error without a code: %v", err)
				}
				continue
			}
			if err := evidence.Walk(os.DirFS(dir), func(string, int64) error { return nil }); err != nil && !strings.Contains(err.Error(), "empty directory") {
				t.Fatalf("what was unpacked is no bundle: %v", err)
			}
		}
		if list, err := os.ReadDir(parent); err != nil || len(list) != 2 {
			t.Fatalf("files outside: %v, %v", list, err)
		}
	})
}
