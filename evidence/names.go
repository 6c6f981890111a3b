package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

// The bounds of a path. They keep every path of a bundle inside a ustar
// header (a name of 100 and a prefix of 155 bytes, POSIX.1-1988), on any
// common file system and free of collisions where case does not count.
const (
	maxSegment  = 100
	maxSegments = 8
	maxName     = 100
	maxPrefix   = 155

	// cells/<test>/<cell>/<n>/raw must fit the prefix, <step>.<node>/exit.json
	// the name.
	maxTestDir = 64
	maxCellDir = 75
	maxStepDir = maxName - len("/exit.json")
)

// PathName maps name to one path segment of [a-z0-9._-], at most 100 bytes,
// that starts and ends with no dot and is no device name of Windows. A name
// that is one already is unchanged; any other becomes a readable form of it,
// "-" and 8 hex digits of its SHA-256.
func PathName(name string) string { return shorten(name, maxSegment) }

func shorten(name string, limit int) string {
	if len(name) <= limit && checkSegment(name) == nil {
		return name
	}
	var readable strings.Builder
	for _, r := range strings.ToLower(name) {
		if r < 0x80 && inAlphabet(byte(r)) {
			readable.WriteRune(r)
		} else {
			readable.WriteByte('-')
		}
	}
	text := strings.Trim(readable.String(), ".-")
	if text == "" || reserved(text) {
		text = strings.TrimSuffix("x-"+text, "-") // "con.n1" is reserved whatever follows its first dot
	}
	most := limit - len(hash8(name)) - 1
	return strings.TrimRight(text[:min(len(text), most)], ".-") + "-" + hash8(name)
}

func hash8(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

func inAlphabet(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// reserved reports whether Windows takes the segment for a device: what
// stands before the first dot counts ("Naming Files, Paths, and Namespaces",
// Microsoft).
func reserved(segment string) bool {
	base, _, _ := strings.Cut(segment, ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && base[3] >= '0' && base[3] <= '9'
}

func checkSegment(segment string) error {
	switch {
	case segment == "":
		return fmt.Errorf("a segment is empty")
	case len(segment) > maxSegment:
		return fmt.Errorf("segment %.20q… is longer than %d bytes", segment, maxSegment)
	case segment[0] == '.' || segment[len(segment)-1] == '.':
		return fmt.Errorf("segment %q starts or ends with a dot", segment)
	}
	for i := range len(segment) {
		if !inAlphabet(segment[i]) {
			return fmt.Errorf("segment %q has %q, which is not one of a-z 0-9 . _ -", segment, segment[i])
		}
	}
	if reserved(segment) {
		return fmt.Errorf("segment %q is a device name on Windows", segment)
	}
	return nil
}

// ValidPath checks that path can be in a bundle: at most 8 segments, each as
// PathName gives them, separated by "/", and fit for a ustar header.
func ValidPath(path string) error {
	segments := 0
	for segment := range strings.SplitSeq(path, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("path %.300q: %w", path, err)
		}
		if segments++; segments > maxSegments {
			return fmt.Errorf("path %.300q: more than %d segments", path, maxSegments)
		}
	}
	if !fitsUSTAR(path) {
		return fmt.Errorf("path %.300q: longer than a tar header holds (a name of %d and a prefix of %d bytes)", path, maxName, maxPrefix)
	}
	return nil
}

func fitsUSTAR(path string) bool {
	if len(path) <= maxName {
		return true
	}
	// The rest after the last slash that the prefix can hold is the shortest.
	slash := strings.LastIndexByte(path[:min(len(path), maxPrefix+1)], '/')
	return slash > 0 && len(path)-slash-1 <= maxName
}

// SourcePath is where a file of the runbook is enclosed, below run/runbook:
// PathName of each segment.
func SourcePath(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i] = PathName(segment)
	}
	return strings.Join(segments, "/")
}

// CellID is the address of a cell and its directory below cells/:
// "<test>/<node>.r<repetition>", and "<test>/set-<8 hex>.r<repetition>" for
// any other number of nodes than one, with the first digits of the SHA-256 of
// the folded set.
func CellID(test string, nodes []string, repetition int) string {
	suffix := ".r" + strconv.Itoa(repetition)
	var name string
	if len(nodes) == 1 {
		name = shorten(nodes[0], maxCellDir-len(suffix))
	} else {
		name = "set-" + hash8(nodeset.Fold(nodes))
	}
	return shorten(test, maxTestDir) + "/" + name + suffix
}

// StepDir is the directory of one step on one node, below raw/:
// "<step>.<node>".
func StepDir(step, node string) string {
	return shorten(PathName(step)+"."+PathName(node), maxStepDir)
}

// AttemptPath is the directory of one attempt of a cell.
func AttemptPath(cell string, attempt int) string {
	return "cells/" + cell + "/" + strconv.Itoa(attempt)
}

// NewRunID is the name of a run that begins now: its time in UTC and two
// random bytes, such as 2026-11-30t14-02-11z-3f9a.
func NewRunID(now time.Time, random io.Reader) (string, error) {
	var tail [2]byte
	if _, err := io.ReadFull(random, tail[:]); err != nil {
		return "", fmt.Errorf("random digits of the run's name: %w", err)
	}
	return now.UTC().Format("2006-01-02t15-04-05z") + "-" + hex.EncodeToString(tail[:]), nil
}
