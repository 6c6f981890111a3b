package runbook

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// version is a version as in Semantic Versioning 2.0.0, without build metadata.
type version struct {
	core [3]uint64
	pre  string
}

var versionForm = regexp.MustCompile(`^v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)

func parseVersion(text string) (version, error) {
	m := versionForm.FindStringSubmatch(text)
	if m == nil {
		return version{}, fmt.Errorf("%q is not a version: write one such as 1.2.0", text)
	}
	v := version{pre: m[4]}
	for i := range v.core {
		if m[i+1] != "" {
			v.core[i], _ = strconv.ParseUint(m[i+1], 10, 64) // at most nine digits
		}
	}
	return v, nil
}

// compare orders versions as Semantic Versioning section 11 does.
func (v version) compare(o version) int {
	for i := range v.core {
		if c := cmp.Compare(v.core[i], o.core[i]); c != 0 {
			return c
		}
	}
	switch {
	case v.pre == o.pre:
		return 0
	case v.pre == "":
		return 1
	case o.pre == "":
		return -1
	}
	a, b := strings.Split(v.pre, "."), strings.Split(o.pre, ".")
	for i := range min(len(a), len(b)) {
		if c := comparePre(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func comparePre(a, b string) int {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Compare(x, y)
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// constraint is one condition on a version.
type constraint struct {
	op      string
	version version
	text    string
	parts   int // how many numbers were written, for ~>
}

func (c constraint) String() string { return strconv.Quote(c.text) }

var constraintForm = regexp.MustCompile(`^(>=|<=|!=|~>|>|<|=)?\s*(\S+)$`)

// parseConstraints reads conditions that must all hold: ">= 0.1.0, < 2.0.0".
func parseConstraints(text string) ([]constraint, error) {
	var out []constraint
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		m := constraintForm.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not a condition on a version: write such as \">= 0.1.0, < 2.0.0\", with =, !=, >, >=, <, <= or ~>", part)
		}
		v, err := parseVersion(m[2])
		if err != nil {
			return nil, err
		}
		out = append(out, constraint{op: cmp.Or(m[1], "="), version: v, text: part, parts: 1 + strings.Count(strings.SplitN(m[2], "-", 2)[0], ".")})
	}
	return out, nil
}

func (c constraint) met(v version) bool {
	order := v.compare(c.version)
	switch c.op {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	}
	// "~> 1.2" admits 1.9 and not 2.0; "~> 1.2.3" admits 1.2.9 and not 1.3.
	limit := version{core: c.version.core}
	at := max(0, c.parts-2)
	limit.core[at]++
	for i := at + 1; i < len(limit.core); i++ {
		limit.core[i] = 0
	}
	return order >= 0 && version{core: v.core}.compare(limit) < 0
}
