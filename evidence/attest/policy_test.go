package attest

import (
	"crypto/sha1"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

var zeroDigest = evidence.DigestFromSum(make([]byte, 32))

func sha512Of(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] }

func sha1Of(b []byte) []byte { sum := sha1.Sum(b); return sum[:] }

// policyOf trusts s as the operator, under the name "lead".
func policyOf(t *testing.T, s Signer) Policy {
	t.Helper()
	return Policy{
		Name:    "customer",
		Keys:    []Key{{Name: "lead", Owner: "compute", PEM: publicPEM(t, s.Public())}},
		Roles:   []Role{{Name: RoleOperator, AnyOf: []string{"lead"}, Quorum: 1}},
		Require: Require{Level: Reproduced},
	}
}

func TestPolicyValidate(t *testing.T) {
	first, second, third := newSigner(t), newSigner(t), newSigner(t)
	good := func() Policy {
		p := policyOf(t, first)
		p.Keys = append(p.Keys,
			Key{Name: "fabric", Owner: "fabric", PEM: publicPEM(t, second.Public())},
			Key{Name: "spare", Owner: "fabric", PEM: publicPEM(t, third.Public())})
		p.Roles = append(p.Roles, Role{Name: "release", AnyOf: []string{"lead", "fabric", "spare"}, Quorum: 2})
		return p
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(p *Policy)
		want   string
	}{
		{"quorum 0", func(p *Policy) { p.Roles[1].Quorum = 0 }, `role "release": quorum 0`},
		{"quorum negative", func(p *Policy) { p.Roles[0].Quorum = -1 }, `role "operator": quorum -1`},
		{"quorum above owners", func(p *Policy) { p.Roles[1].Quorum = 3 }, "2 distinct owners"},
		{"operator quorum 2", func(p *Policy) {
			p.Roles[0] = Role{Name: RoleOperator, AnyOf: []string{"lead", "fabric"}, Quorum: 2}
		}, "exactly one operator's signature"},
		{"empty role", func(p *Policy) { p.Roles[1].AnyOf = nil }, `role "release": no keys`},
		{"unknown key", func(p *Policy) { p.Roles[1].AnyOf[0] = "laed" }, `unknown key "laed"`},
		{"key named twice in a role", func(p *Policy) { p.Roles[1].AnyOf[1] = "lead" }, `key "lead" is named twice`},
		{"no operator", func(p *Policy) { p.Roles = p.Roles[1:] }, `no role "operator"`},
		{"role twice", func(p *Policy) { p.Roles = append(p.Roles, p.Roles[0]) }, `role "operator": declared twice`},
		{"role without a name", func(p *Policy) { p.Roles[1].Name = "" }, "role 2: no name"},
		{"key twice", func(p *Policy) { p.Keys = append(p.Keys, p.Keys[0]) }, `key "lead": declared twice`},
		{"one key under two names", func(p *Policy) { p.Keys[2].PEM = p.Keys[0].PEM }, `the same key as "lead"`},
		{"key without a name", func(p *Policy) { p.Keys[2].Name = "" }, "key 3: no name"},
		{"key without an owner", func(p *Policy) { p.Keys[2].Owner = "" }, `key "spare": no owner`},
		{"key without PEM", func(p *Policy) { p.Keys[2].PEM = nil }, `key "spare": public key: no PEM block`},
		{"no keys", func(p *Policy) { p.Keys = nil }, `unknown key "lead"`},
		{"level unknown", func(p *Policy) { p.Require.Level = Unknown }, "require level unknown"},
		{"level of the future", func(p *Policy) { p.Require.Level = 9 }, "require level level(9)"},
		{"negative age", func(p *Policy) { p.Require.MaxAge = -1 }, "require max age"},
		{"bad runbook digest", func(p *Policy) { p.Require.Runbooks = []evidence.Digest{"sha256:12"} }, "require runbooks"},
		{"negative retries", func(p *Policy) { p.Accept.Retried = -1 }, "accept retried"},
		{"negative cuts", func(p *Policy) { p.Accept.Interrupted = -1 }, "accept interrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := good()
			c.change(&p)
			wantError(t, p.Validate(), c.want)
		})
	}
	t.Run("zero value", func(t *testing.T) {
		wantError(t, Policy{}.Validate(), `no role "operator"`, "require level")
	})
	t.Run("all at once", func(t *testing.T) {
		p := good()
		p.Keys[0].Owner, p.Roles[1].Quorum, p.Accept.Retried = "", 0, -2
		wantError(t, p.Validate(), "no owner", "quorum 0", "accept retried -2")
	})
}

func TestLevelWords(t *testing.T) {
	for level, word := range map[Level]string{Unknown: "unknown", Intact: "intact", Attested: "attested", Reproduced: "reproduced"} {
		text, err := json.Marshal(level)
		if err != nil || string(text) != `"`+word+`"` || level.String() != word {
			t.Errorf("level %d is %s, %q, %v; want %q", level, text, level, err, word)
		}
		var back Level
		if err := json.Unmarshal(text, &back); err != nil || back != level {
			t.Errorf("%s reads as %v, %v", text, back, err)
		}
	}
	if _, err := Level(4).MarshalText(); err == nil {
		t.Error("level 4 has a word")
	}
	var level Level
	wantError(t, level.UnmarshalText([]byte("Attested")), `unknown trust level "Attested"`)
}
