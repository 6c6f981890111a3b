package runbook

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// maxKeyFile is the most bytes of a file with a public key.
const maxKeyFile = 64 << 10

// trustLoader decodes one trust policy.
type trustLoader struct {
	scope
	from   *folder
	policy attest.Policy
}

// LoadTrust reads the trust policy at file in fsys. Key files are relative to
// the policy's folder. Without a require block the level is reproduced; nothing
// is accepted that is not named. The policy is valid where there are no errors.
func LoadTrust(fsys fs.FS, file string) (attest.Policy, map[string]*hcl.File, hcl.Diagnostics) {
	l := &trustLoader{from: newFolder(fsys, path.Dir(file), "trust policy")}
	// No function exists in a policy, and nothing that it could refer to.
	l.ctx = &hcl.EvalContext{}
	l.symbols = map[string][]string{}
	l.kinds = referenceKinds
	files := map[string]*hcl.File{}
	l.files = files
	base := path.Base(file)
	src, err := l.from.file(base, maxRunbook)
	if err != nil {
		start := hcl.Range{Filename: base, Start: hcl.InitialPos, End: hcl.InitialPos}
		return attest.Policy{}, files, hcl.Diagnostics{fail(RuleUnreadable, start, "Trust policy cannot be read", sentence(err))}
	}
	parsed, diags := parse(src, base)
	files[base] = parsed
	if diags.HasErrors() {
		return attest.Policy{}, files, diags
	}
	body := parsed.Body.(*hclsyntax.Body)
	m := &meter{}
	l.diags = append(l.diags, m.install(body)...)
	if root, ok := l.content(body, TrustSchema()); ok {
		l.trust(root.one("trust"))
	}
	if l.diags.HasErrors() {
		return attest.Policy{}, files, l.diags
	}
	return l.policy, files, l.diags
}

func (l *trustLoader) trust(block *hclsyntax.Block) {
	schema, _ := TrustSchema().block("trust")
	c, ok := l.content(block.Body, schema)
	if !ok {
		return
	}
	l.policy.Name = block.Labels[0]
	l.policy.Require.Level = attest.Reproduced
	l.unique(c.blocks["key"])
	l.unique(c.blocks["role"])
	l.symbols["key"] = symbolsOf(c.blocks["key"])
	for _, b := range c.blocks["key"] {
		l.key(b, schema)
	}
	roles := map[string]*hclsyntax.Block{}
	for _, b := range c.blocks["role"] {
		roles[b.Labels[0]] = b
		l.role(b, schema)
	}
	if roles[attest.RoleOperator] == nil {
		l.add(fail(RuleTrustRole, block.DefRange(), "No role for the operator",
			fmt.Sprintf("The key of role %q must have signed a run, and no such role is declared, so no run could be trusted. Add role %q { any_of = [key.…] }.", attest.RoleOperator, attest.RoleOperator)))
	}
	if b := c.one("require"); b != nil {
		l.require(b, schema)
	}
	if b := c.one("accept"); b != nil {
		l.accept(b, schema)
	}
	if l.diags.HasErrors() {
		return
	}
	// What is left can only be seen with all keys and roles at hand.
	if err := l.policy.Validate(); err != nil {
		l.add(fail(RuleTrustValue, block.DefRange(), "Trust policy could trust by accident", fmt.Sprintf("As it stands this policy is refused: %s.", strings.TrimSuffix(err.Error(), "."))))
	}
}

func (l *trustLoader) key(b *hclsyntax.Block, schema Block) {
	inner, _ := schema.block("key")
	c, ok := l.content(b.Body, inner)
	if !ok {
		return
	}
	k := attest.Key{Name: b.Labels[0]}
	k.Owner, _ = l.text(c.args["owner"])
	if name, ok := l.text(c.args["file"]); ok {
		data, err := l.from.file(name, maxKeyFile)
		if err == nil {
			_, err = attest.ParsePublicKey(data)
		}
		if err != nil {
			l.add(fail(RuleTrustKey, c.args["file"].Expr.Range(), "Key cannot be used", fmt.Sprintf("This file gives no key to trust: %s.", strings.TrimSuffix(err.Error(), "."))))
			return
		}
		k.PEM = data
	}
	if attr := c.args["not_after"]; attr != nil {
		k.NotAfter = l.moment(attr)
	}
	l.policy.Keys = append(l.policy.Keys, k)
}

// moment reads a day, of which the last second in UTC is meant, or a time.
func (l *trustLoader) moment(attr *hclsyntax.Attribute) *time.Time {
	text, ok := l.text(attr)
	if !ok {
		return nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		last := day.Add(24*time.Hour - time.Second)
		return &last
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		l.add(fail(RuleTrustDate, attr.Expr.Range(), "Unsuitable date", fmt.Sprintf("%q is neither a day such as \"2027-06-30\" nor a time such as \"2027-06-30T12:00:00Z\".", text)))
		return nil
	}
	at = at.UTC()
	return &at
}

func (l *trustLoader) role(b *hclsyntax.Block, schema Block) {
	inner, _ := schema.block("role")
	c, ok := l.content(b.Body, inner)
	if !ok {
		return
	}
	role := attest.Role{Name: b.Labels[0], Quorum: 1}
	refs, ok := l.references("any_of", c.args["any_of"].Expr, "key")
	if ok && len(refs) == 0 {
		l.add(fail(RuleTrustRole, c.args["any_of"].Expr.Range(), "Role without a key", "Nobody could act in this role. Name at least one key."))
		return
	}
	role.AnyOf = refNames(refs)
	if attr := c.args["quorum"]; attr != nil {
		n, good := l.whole(attr, 1)
		if !good {
			return
		}
		role.Quorum = n
		owners := map[string]bool{}
		for _, k := range l.policy.Keys {
			if slices.Contains(role.AnyOf, k.Name) {
				owners[k.Owner] = true
			}
		}
		switch {
		case role.Name == attest.RoleOperator && n > 1:
			l.add(fail(RuleTrustRole, attr.Expr.Range(), "Quorum can never be met", "A run carries exactly one operator's signature, so the quorum of this role is 1."))
		case ok && n > len(owners) && !l.diags.HasErrors():
			l.add(fail(RuleTrustRole, attr.Expr.Range(), "Quorum can never be met",
				fmt.Sprintf("A quorum counts owners and not keys: these keys have %s, and %d are wanted.", evidence.Count(len(owners), "distinct owner"), n)))
		}
	}
	l.policy.Roles = append(l.policy.Roles, role)
}

func (l *trustLoader) require(b *hclsyntax.Block, schema Block) {
	inner, _ := schema.block("require")
	c, ok := l.content(b.Body, inner)
	if !ok {
		return
	}
	q := &l.policy.Require
	if attr := c.args["level"]; attr != nil {
		levels := []attest.Level{attest.Intact, attest.Attested, attest.Reproduced}
		words := make([]string, len(levels))
		for i, level := range levels {
			words[i] = level.String()
		}
		if word, ok := l.enum(attr, words); ok {
			q.Level = levels[slices.Index(words, word)]
		}
	}
	if attr := c.args["max_age"]; attr != nil {
		q.MaxAge, _ = l.positive(attr)
	}
	if attr := c.args["runbooks"]; attr != nil {
		l.runbooks(attr)
	}
	if attr := c.args["approved"]; attr != nil {
		q.Approved, _ = l.boolean(attr)
	}
}

// runbooks reads digests. An empty list would accept every runbook, which is
// not what somebody means who writes one.
func (l *trustLoader) runbooks(attr *hclsyntax.Attribute) {
	elements, ok := l.list(attr.Name, attr.Expr, "a list of digests")
	if !ok {
		return
	}
	if len(elements) == 0 {
		l.add(fail(RuleTrustValue, attr.Expr.Range(), "No runbook is accepted", "An empty list accepts none. Name the digests of the runbooks, or leave the argument out to accept every one."))
	}
	for _, e := range elements {
		text, _ := plainText(e.val)
		digest, err := evidence.ParseDigest(text)
		if err != nil || e.val.Type() != cty.String {
			l.add(fail(RuleTrustValue, e.expr.Range(), "Unsuitable digest", fmt.Sprintf("%q is no digest of a runbook. Write \"sha256:\" and 64 hexadecimal digits in lower case, as \"rackproof plan\" prints it.", text)))
			continue
		}
		l.policy.Require.Runbooks = append(l.policy.Require.Runbooks, digest)
	}
}

func (l *trustLoader) accept(b *hclsyntax.Block, schema Block) {
	inner, _ := schema.block("accept")
	c, ok := l.content(b.Body, inner)
	if !ok {
		return
	}
	a := &l.policy.Accept
	for _, flag := range []struct {
		name string
		to   *bool
	}{{"simulated", &a.Simulated}, {"narrowed", &a.Narrowed}, {"off_contract", &a.OffContract}} {
		if attr := c.args[flag.name]; attr != nil {
			*flag.to, _ = l.boolean(attr)
		}
	}
	for _, number := range []struct {
		name string
		to   *int
	}{{"retried", &a.Retried}, {"interrupted", &a.Interrupted}} {
		if attr := c.args[number.name]; attr != nil {
			*number.to, _ = l.whole(attr, 0)
		}
	}
}
