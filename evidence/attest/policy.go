package attest

import (
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// RoleOperator is the role whose key must have signed a run.
const RoleOperator = "operator"

// Policy is whom and what a verifier trusts. It comes from the verifier and
// never from the evidence. The zero value trusts nobody and does not
// validate.
type Policy struct {
	Name    string  `json:"name"`
	Keys    []Key   `json:"keys"`
	Roles   []Role  `json:"roles"`
	Require Require `json:"require"`
	Accept  Accept  `json:"accept"`
}

// Key is one public key and the person or party who answers for it.
type Key struct {
	Name     string     `json:"name"`
	Owner    string     `json:"owner"`
	PEM      []byte     `json:"pem"`                // one PUBLIC KEY block
	NotAfter *time.Time `json:"notAfter,omitempty"` // the last moment at which the key is good
}

// Role binds keys, by name, to what they may sign. Quorum counts distinct
// owners.
type Role struct {
	Name   string   `json:"name"`
	AnyOf  []string `json:"anyOf"`
	Quorum int      `json:"quorum"`
}

// Require is what must hold beside the signature. MaxAge is of the oldest
// attempt that counts, by the run's own claim, and zero sets no limit; an
// empty list of Runbooks accepts every runbook.
type Require struct {
	Level    Level             `json:"level"`
	MaxAge   evidence.Duration `json:"maxAge,omitzero"`
	Runbooks []evidence.Digest `json:"runbooks,omitempty"`
	Approved bool              `json:"approved,omitempty"`
}

// Accept is what a verifier puts up with. The zero value accepts none of it.
// A cell counts once as Retried, and once more for each further attempt beyond
// those that its plan allows.
type Accept struct {
	Simulated   bool `json:"simulated,omitempty"`
	Narrowed    bool `json:"narrowed,omitempty"`
	OffContract bool `json:"offContract,omitempty"`
	Retried     int  `json:"retried,omitempty"`     // cells that passed on a later attempt
	Interrupted int  `json:"interrupted,omitempty"` // attempts cut by the runner's death or a stop
}

// Validate reports every way in which the policy could trust by accident: an
// empty role, a quorum that nobody or one person under two names can meet, a
// key that is not allowed, no operator.
func (p Policy) Validate() error {
	_, err := p.compile()
	return err
}

// trustedKey is a policy's key after Validate.
type trustedKey struct {
	Key
	public      crypto.PublicKey
	fingerprint evidence.Digest
	operator    bool
}

// signatory names the key in results.
func (k trustedKey) signatory() Signatory {
	return Signatory{Key: k.Name, Owner: k.Owner, Fingerprint: k.fingerprint}
}

// compile validates the policy and returns its keys in the policy's order.
func (p Policy) compile() ([]trustedKey, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	keys := make([]trustedKey, 0, len(p.Keys))
	byName := make(map[string]int)
	byFingerprint := make(map[evidence.Digest]string)
	for i, k := range p.Keys {
		if k.Name == "" {
			refuse("key %d: no name", i+1)
			continue
		}
		if _, twice := byName[k.Name]; twice {
			refuse("key %q: declared twice", k.Name)
			continue
		}
		byName[k.Name] = -1
		if k.Owner == "" {
			refuse("key %q: no owner: a quorum counts owners, so name who answers for the key", k.Name)
		}
		public, err := ParsePublicKey(k.PEM)
		if err != nil {
			refuse("key %q: %w", k.Name, err)
			continue
		}
		fingerprint, err := Fingerprint(public)
		if err != nil {
			refuse("key %q: %w", k.Name, err)
			continue
		}
		if first, twice := byFingerprint[fingerprint]; twice {
			refuse("key %q: the same key as %q: one key under two names would count twice", k.Name, first)
			continue
		}
		byFingerprint[fingerprint] = k.Name
		byName[k.Name] = len(keys)
		keys = append(keys, trustedKey{Key: k, public: public, fingerprint: fingerprint})
	}

	roles := make(map[string]bool)
	for i, r := range p.Roles {
		if r.Name == "" {
			refuse("role %d: no name", i+1)
			continue
		}
		if roles[r.Name] {
			refuse("role %q: declared twice", r.Name)
			continue
		}
		roles[r.Name] = true
		for _, err := range r.bind(keys, byName) {
			refuse("role %q: %w", r.Name, err)
		}
	}
	if !roles[RoleOperator] {
		refuse("no role %q: without it no signature of a run can be trusted", RoleOperator)
	}

	if p.Require.Level <= Unknown || p.Require.Level > Reproduced {
		refuse("require level %s: want intact, attested or reproduced", p.Require.Level)
	}
	if p.Require.MaxAge < 0 {
		refuse("require max age %s: want a positive duration", p.Require.MaxAge)
	}
	for _, d := range p.Require.Runbooks {
		if _, err := evidence.ParseDigest(string(d)); err != nil {
			refuse("require runbooks: %w", err)
		}
	}
	if p.Accept.Retried < 0 {
		refuse("accept retried %d: want 0 or more", p.Accept.Retried)
	}
	if p.Accept.Interrupted < 0 {
		refuse("accept interrupted %d: want 0 or more", p.Accept.Interrupted)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return keys, nil
}

// bind checks the role and marks the operator's keys.
func (r Role) bind(keys []trustedKey, byName map[string]int) (errs []error) {
	if len(r.AnyOf) == 0 {
		return []error{errors.New("no keys: name at least one in any_of")}
	}
	owners := make(map[string]bool)
	unknown := false
	for i, name := range r.AnyOf {
		at, known := byName[name]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("unknown key %q", name))
			unknown = true
		case slices.Contains(r.AnyOf[:i], name):
			errs = append(errs, fmt.Errorf("key %q is named twice", name))
		case at < 0: // refused already, with its own error
			unknown = true
		default:
			owners[keys[at].Owner] = true
			keys[at].operator = keys[at].operator || r.Name == RoleOperator
		}
	}
	switch {
	case r.Quorum < 1:
		errs = append(errs, fmt.Errorf("quorum %d: want 1 or more", r.Quorum))
	case r.Name == RoleOperator && r.Quorum > 1:
		errs = append(errs, fmt.Errorf("quorum %d: a run carries exactly one operator's signature, so want 1", r.Quorum))
	case !unknown && r.Quorum > len(owners):
		errs = append(errs, fmt.Errorf("quorum %d: its keys have %d distinct owners, so it can never be met", r.Quorum, len(owners)))
	}
	return errs
}
