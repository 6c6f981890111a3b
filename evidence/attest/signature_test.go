package attest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	sigdsse "github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/rackproof/rackproof/evidence"
)

// step2 checks a bundle against the lists of the run in dir.
func step2(t *testing.T, dir string, bundle []byte, p Policy) StepResult {
	t.Helper()
	step, _, _, _ := CheckSignature(bundle, read(t, dir, evidence.ManifestPath), read(t, dir, evidence.SumsPath), p, time.Now())
	return step
}

func TestHostileBundles(t *testing.T) {
	dir, _, policy := signedRun(t)
	other := newSigner(t)
	otherHint, err := Hint(other.Public())
	must(t, err)
	otherID := other.KeyID()
	good := string(read(t, dir, evidence.SignaturePath))
	payload := readLoose(t, dir).object("dsseEnvelope")["payload"].(string)

	loose := func(change func(b looseBundle)) func(string) string {
		return func(string) string {
			b := readLoose(t, dir)
			change(b)
			return string(b.bytes(t))
		}
	}
	replace := func(old, new string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, new, 1) }
	}
	for _, c := range []struct {
		name   string
		change func(string) string
		code   string // empty: accepted
	}{
		{"hint changed", loose(func(b looseBundle) {
			b.object("verificationMaterial")["publicKey"] = map[string]any{"hint": otherHint}
		}), ""},
		{"hint empty", loose(func(b looseBundle) { b.object("verificationMaterial")["publicKey"] = map[string]any{} }), ""},
		{"no keyid", loose(func(b looseBundle) { delete(b.signature(), "keyid") }), ""},
		{"indented", func(text string) string {
			var b bytes.Buffer
			must(t, json.Indent(&b, []byte(text), "", "  "))
			return b.String()
		}, ""},
		{"trailing line ends", func(text string) string { return text + "\n\n" }, ""},
		{"timestamps and log entries, not evaluated", loose(func(b looseBundle) {
			b.object("verificationMaterial")["tlogEntries"] = []any{map[string]any{"logIndex": "1"}}
			b.object("verificationMaterial")["timestampVerificationData"] = map[string]any{
				"rfc3161Timestamps": []any{map[string]any{"signedTimestamp": "AAAA"}},
			}
		}), ""},

		{"payload edited", loose(func(b looseBundle) {
			text, err := base64.StdEncoding.DecodeString(payload)
			must(t, err)
			text = bytes.Replace(text, []byte(`"outcome":"inconclusive"`), []byte(`"outcome":"pass"`), 1)
			b.object("dsseEnvelope")["payload"] = base64.StdEncoding.EncodeToString(text)
		}), CodeSignature},
		{"payload written again with other white space", loose(func(b looseBundle) {
			text, err := base64.StdEncoding.DecodeString(payload)
			must(t, err)
			var again bytes.Buffer
			must(t, json.Indent(&again, text, "", " "))
			b.object("dsseEnvelope")["payload"] = base64.StdEncoding.EncodeToString(again.Bytes())
		}), CodeSignature},
		{"payload empty", loose(func(b looseBundle) { b.object("dsseEnvelope")["payload"] = "" }), CodeSignature},
		{"payloadType edited", loose(func(b looseBundle) { b.object("dsseEnvelope")["payloadType"] = "application/json" }), CodePayloadType},
		{"payloadType in another case", loose(func(b looseBundle) {
			b.object("dsseEnvelope")["payloadType"] = "application/vnd.in-toto+JSON"
		}), CodePayloadType},
		{"payloadType empty", loose(func(b looseBundle) { delete(b.object("dsseEnvelope"), "payloadType") }), CodePayloadType},
		{"signature with a trailing byte", loose(func(b looseBundle) {
			sig, err := base64.StdEncoding.DecodeString(b.signature()["sig"].(string))
			must(t, err)
			b.signature()["sig"] = base64.StdEncoding.EncodeToString(append(sig, 0))
		}), CodeSignature},
		{"signature empty", loose(func(b looseBundle) { b.signature()["sig"] = "" }), CodeSignature},
		{"signature (0, 0)", loose(func(b looseBundle) { b.signature()["sig"] = "MAYCAQACAQA=" }), CodeSignature},
		{"no signature", loose(func(b looseBundle) { b.object("dsseEnvelope")["signatures"] = []any{} }), CodeBundle},
		{"two signatures", loose(func(b looseBundle) {
			b.object("dsseEnvelope")["signatures"] = []any{b.signature(), b.signature()}
		}), CodeBundle},
		{"keyid junk", loose(func(b looseBundle) { b.signature()["keyid"] = "junk" }), CodeBundle},
		{"keyid of another key", loose(func(b looseBundle) { b.signature()["keyid"] = otherID }), CodeBundle},

		{"unknown field", loose(func(b looseBundle) { b["extra"] = true }), CodeBundle},
		{"unknown field in the envelope", loose(func(b looseBundle) { b.object("dsseEnvelope")["extra"] = true }), CodeBundle},
		{"duplicate field", replace(`{"mediaType":`, `{"mediaType":"x","mediaType":`), CodeBundle},
		{"duplicate payload", replace(`"payload":`, `"payload":"AAAA","payload":`), CodeBundle},
		{"case variant", replace(`"dsseEnvelope":`, `"DsseEnvelope":`), CodeBundle},
		{"case variant beside the field", replace(`"payload":`, `"Payload":"AAAA","payload":`), CodeBundle},
		{"snake case", replace(`"dsseEnvelope":`, `"dsse_envelope":`), CodeBundle},
		{"base64 with a digit too many", replace(payload, payload+"A"), CodeBundle},
		{"payload not base64", replace(payload, "%%%%"), CodeBundle},
		{"payload a number", replace(`"`+payload+`"`, "7"), CodeBundle},
		{"trailing JSON", func(text string) string { return text + "{}" }, CodeBundle},
		{"two documents", func(text string) string { return text + text }, CodeBundle},
		{"public key and certificate", loose(func(b looseBundle) {
			b.object("verificationMaterial")["certificate"] = map[string]any{"rawBytes": "AAAA"}
		}), CodeBundle},
		{"certificate alone", loose(func(b looseBundle) {
			b["verificationMaterial"] = map[string]any{"certificate": map[string]any{"rawBytes": "AAAA"}}
		}), CodeBundle},
		{"certificate chain", loose(func(b looseBundle) {
			b["verificationMaterial"] = map[string]any{"x509CertificateChain": map[string]any{"certificates": []any{}}}
		}), CodeBundle},
		{"public key inside the bundle", loose(func(b looseBundle) {
			b.object("verificationMaterial")["publicKey"] = map[string]any{"hint": otherHint, "rawBytes": "AAAA"}
		}), CodeBundle},
		{"no verification material", loose(func(b looseBundle) { delete(b, "verificationMaterial") }), CodeBundle},
		{"verification material null", loose(func(b looseBundle) { b["verificationMaterial"] = nil }), CodeBundle},
		{"no envelope", loose(func(b looseBundle) { delete(b, "dsseEnvelope") }), CodeBundle},
		{"message signature", loose(func(b looseBundle) {
			delete(b, "dsseEnvelope")
			b["messageSignature"] = map[string]any{"signature": "AAAA"}
		}), CodeBundle},
		{"media type v0.4", replace("bundle.v0.3+json", "bundle.v0.4+json"), CodeBundle},
		{"media type v0.1, old form", replace("bundle.v0.3+json", "bundle+json;version=0.1"), CodeBundle},
		{"media type v0.2, old form", replace("bundle.v0.3+json", "bundle+json;version=0.2"), CodeBundle},
		{"media type v0.3, old form", replace("bundle.v0.3+json", "bundle+json;version=0.3"), CodeBundle},
		{"no media type", loose(func(b looseBundle) { delete(b, "mediaType") }), CodeBundle},
		{"log entry of a wrong shape", loose(func(b looseBundle) {
			b.object("verificationMaterial")["tlogEntries"] = []any{"x"}
		}), CodeBundle},
		{"legacy cosign bundle", func(string) string { return `{"base64Signature":"AAAA","cert":"AAAA","rekorBundle":{}}` }, CodeBundle},
		{"bare DSSE envelope", func(string) string {
			text, err := json.Marshal(readLoose(t, dir)["dsseEnvelope"])
			must(t, err)
			return string(text)
		}, CodeBundle},
		{"JSON lines", func(text string) string { return text + text + text }, CodeBundle},
		{"truncated", func(text string) string { return text[:len(text)/2] }, CodeBundle},
		{"empty", func(string) string { return "" }, CodeBundle},
		{"null", func(string) string { return "null" }, CodeBundle},
		{"array", func(text string) string { return "[" + text + "]" }, CodeBundle},
		{"garbage", func(string) string { return "\x00\xff\x1b[2J" }, CodeBundle},
		{"byte-order mark", func(text string) string { return "\ufeff" + text }, CodeBundle},
		{"invalid UTF-8", replace(`"hint":"`, "\"hint\":\"\xff"), CodeBundle},
		{"deep nesting", func(string) string { return strings.Repeat("[", 1000) + strings.Repeat("]", 1000) }, CodeBundle},
		{"too large", func(text string) string { return text + strings.Repeat(" ", maxBundle) }, CodeBundle},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := c.change(good)
			step := step2(t, dir, []byte(changed), policy)
			if c.code == "" {
				wantStep(t, step)
				return
			}
			if changed == good {
				t.Fatal("nothing changed")
			}
			wantStep(t, step, c.code)
		})
	}
}

// ECDSA signatures are malleable: (r, n-s) verifies too. The file changes by
// it and the signed payload, to which everything else is bound, does not.
func TestMalleableSignatureKeepsThePayload(t *testing.T) {
	dir, s, policy := signedRun(t)
	b := readLoose(t, dir)
	sig, err := base64.StdEncoding.DecodeString(b.signature()["sig"].(string))
	must(t, err)
	var pair struct{ R, S *big.Int }
	_, err = asn1.Unmarshal(sig, &pair)
	must(t, err)
	pair.S = new(big.Int).Sub(s.Public().(*ecdsa.PublicKey).Params().N, pair.S)
	twin, err := asn1.Marshal(pair)
	must(t, err)
	b.signature()["sig"] = base64.StdEncoding.EncodeToString(twin)

	before := checkDir(t, dir, policy)
	write(t, dir, evidence.SignaturePath, b.bytes(t))
	after := checkDir(t, dir, policy)
	wantStep(t, after.Steps[1])
	if before.PayloadDigest != after.PayloadDigest {
		t.Error("the payload's digest follows the signature's form")
	}
}

// Payloads that the trusted key has properly signed, and that are not the
// statement of this run.
func TestHostilePayloads(t *testing.T) {
	dir, s, policy := signedRun(t)
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	good := string(payload)
	sum := evidence.DigestOf(read(t, dir, evidence.ManifestPath)).Hex()
	manifestSubject := fmt.Sprintf(`{"name":"manifest.json","digest":{"sha256":"%s"}}`, sum)
	sumsSubject := fmt.Sprintf(`{"name":"SHA256SUMS","digest":{"sha256":"%s"}}`, evidence.DigestOf(read(t, dir, evidence.SumsPath)).Hex())
	subjects := "[" + manifestSubject + "," + sumsSubject + "]"
	if !strings.Contains(good, `"subject":`+subjects) {
		t.Fatalf("statement has other subjects:\n%.600s", good)
	}
	many := func(n int) string {
		return "[" + manifestSubject + "," + sumsSubject + strings.Repeat(","+manifestSubject, n-2) + "]"
	}
	repeat := func(code string, n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = code
		}
		return all
	}
	for _, c := range []struct {
		name     string
		old, new string
		codes    []string
	}{
		{"unchanged", "", "", nil},
		{"subjects in the other order", subjects, "[" + sumsSubject + "," + manifestSubject + "]", nil},

		{"statement v0.1", "in-toto.io/Statement/v1", "in-toto.io/Statement/v0.1", []string{CodeStatement}},
		{"statement of any type", "https://in-toto.io/Statement/v1", "x", []string{CodeStatement}},
		{"no _type", `"_type":"https://in-toto.io/Statement/v1",`, "", []string{CodeStatement}},
		{"unknown top-level field", `{"_type"`, `{"extra":1,"_type"`, []string{CodeStatement}},
		{"duplicate subject field", `"subject":`, `"subject":[],"subject":`, []string{CodeStatement}},
		{"case variant subject field", `"subject":`, `"Subject":[],"subject":`, []string{CodeStatement}},
		{"case variant alone", `"predicateType":`, `"predicatetype":`, []string{CodeStatement}},
		{"duplicate key in the predicate", `"simulated":`, `"simulated":false,"simulated":`, []string{CodeStatement}},
		{"duplicate key, escaped", `"simulated":`, `"\u0073imulated":false,"simulated":`, []string{CodeStatement}},
		{"NaN", `"total":`, `"total":NaN,"x":`, []string{CodeStatement}},
		{"trailing data", good, good + "{}", []string{CodeStatement}},
		{"invalid UTF-8", `"name":"rackproof"`, "\"name\":\"\xff\"", []string{CodeStatement}},
		{"deep nesting", `"subject":`, `"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"subject":`, []string{CodeStatement}},
		{"not JSON", good, "hello", []string{CodeStatement}},
		{"empty payload", good, "", []string{CodeStatement}},
		{"null", good, "null", []string{CodeStatement}},

		{"other predicate type", PredicateType, "https://in-toto.io/attestation/test-result/v0.1", []string{CodeStatement}},
		{"approval shown as evidence", PredicateType, "https://rackproof.dev/attestation/approval/v1", []string{CodeStatement}},
		{"next major", PredicateType, "https://rackproof.dev/attestation/acceptance/v2", []string{CodeStatement}},
		{"predicate type in another case", PredicateType, "https://rackproof.dev/attestation/Acceptance/v1", []string{CodeStatement}},

		{"no subjects", subjects, "[]", []string{CodeSubjects, CodeSubjects}},
		{"subjects absent", `"subject":` + subjects + ",", "", []string{CodeSubjects, CodeSubjects}},
		{"one subject", subjects, "[" + manifestSubject + "]", []string{CodeSubjects}},
		{"subject twice", subjects, "[" + manifestSubject + "," + manifestSubject + "," + sumsSubject + "]", []string{CodeSubjects}},
		{"third subject", subjects, "[" + manifestSubject + "," + sumsSubject + `,{"name":"x","digest":{"sha256":"` + sum + `"}}]`, []string{CodeSubjects}},
		{"1,024 subjects", subjects, many(1024), append(repeat(CodeSubjects, maxFailures), CodeMore)},
		{"1,025 subjects", subjects, many(1025), append(repeat(CodeSubjects, maxFailures), CodeMore)},
		{"subject under a path", `"name":"manifest.json"`, `"name":"../../etc/passwd"`, []string{CodeSubjects, CodeSubjects}},
		{"subject under ./", `"name":"manifest.json"`, `"name":"./manifest.json"`, []string{CodeSubjects, CodeSubjects}},
		{"subject in upper case", `"name":"manifest.json"`, `"name":"MANIFEST.JSON"`, []string{CodeSubjects, CodeSubjects}},
		{"digests swapped", subjects, strings.NewReplacer("manifest.json", "SHA256SUMS", "SHA256SUMS", "manifest.json").Replace(subjects), []string{CodeSubjects, CodeSubjects}},
		{"upper-case hex", sum, strings.ToUpper(sum), []string{CodeSubjects}},
		{"digest with a prefix", sum, "sha256:" + sum, []string{CodeSubjects}},
		{"empty digest", `{"sha256":"` + sum + `"}`, `{}`, []string{CodeSubjects}},
		{"second algorithm", `"digest":{`, `"digest":{"sha512":"00",`, []string{CodeStatement}},

		{"predicate empty", predicateOf(t, good), "{}", []string{CodePredicate}},
		{"predicate an array", predicateOf(t, good), "[]", []string{CodePredicate}},
		{"predicate null", predicateOf(t, good), "null", []string{CodePredicate}},
		{"predicate absent", `,"predicate":` + predicateOf(t, good), "", []string{CodePredicate}},
		{"predicate of another media type", MediaPredicate, "application/vnd.rackproof.acceptance.v2+json", []string{CodePredicate}},
		{"predicate with an unknown field", `"simulated":`, `"extra":1,"simulated":`, []string{CodePredicate}},
		{"predicate with a case variant", `"simulated":`, `"Simulated":`, []string{CodePredicate}},
		{"predicate with an unknown outcome", `"outcome":"inconclusive"`, `"outcome":"PASS"`, []string{CodePredicate}},
		{"predicate with a huge number", `"records":`, `"records":9223372036854775808,"x":`, []string{CodePredicate}},

		{"merkle root", `"root":"`, `"root":"00`, []string{CodePredicate}},
		{"merkle size", `"rfc6962-sha256"`, `"rfc6962-sha512"`, []string{CodePredicate}},
		{"files", `"bytes":`, `"bytes":1`, []string{CodePredicate}},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(good, c.old, c.new, 1)
			if (changed == good) != (c.old == "") {
				t.Fatal("nothing changed")
			}
			wantStep(t, step2(t, dir, signedPayload(t, s, payloadType, []byte(changed)), policy), c.codes...)
		})
	}
	t.Run("other payload type, properly signed", func(t *testing.T) {
		wantStep(t, step2(t, dir, signedPayload(t, s, "application/vnd.cyclonedx+json", payload), policy), CodePayloadType)
	})
	t.Run("other white space, properly signed", func(t *testing.T) {
		var indented bytes.Buffer
		must(t, json.Indent(&indented, payload, "", "\t"))
		write(t, dir, evidence.SignaturePath, signedPayload(t, s, payloadType, indented.Bytes()))
		result := checkDir(t, dir, policy)
		wantStep(t, result.Steps[1])
		if want := evidence.DigestOf(indented.Bytes()); result.PayloadDigest != want {
			t.Errorf("digest %s is not of the bytes as stored, %s", result.PayloadDigest, want)
		}
	})
	t.Run("signature in base64url", func(t *testing.T) {
		for {
			bundle := signedPayload(t, s, payloadType, payload)
			var b looseBundle
			must(t, json.Unmarshal(bundle, &b))
			sig := b.signature()["sig"].(string)
			b.signature()["sig"] = strings.NewReplacer("+", "-", "/", "_").Replace(sig)
			if b.signature()["sig"] == sig {
				continue // a signature without either sign: make another
			}
			wantStep(t, step2(t, dir, bundle, policy))
			wantStep(t, step2(t, dir, b.bytes(t), policy), CodeBundle)
			return
		}
	})
	t.Run("too large", func(t *testing.T) {
		large := append(bytes.Clone(payload), bytes.Repeat([]byte(" "), maxStatement)...)
		wantStep(t, step2(t, dir, signedPayload(t, s, payloadType, large), policy), CodeBundle)
	})
}

func predicateOf(t *testing.T, payload string) string {
	t.Helper()
	var st statement
	must(t, json.Unmarshal([]byte(payload), &st))
	return string(st.Predicate)
}

// What was signed must follow from the files, field by field.
func TestSignedSummaryMustAgreeWithTheFiles(t *testing.T) {
	dir, s, policy := signedRun(t)
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	other := string(evidence.DigestOf([]byte("other")))
	for _, c := range []struct {
		field string
		alter func(p *Predicate)
	}{
		{"run", func(p *Predicate) { p.Run = "2026-11-30t14-02-11z-0000" }},
		{"tool", func(p *Predicate) { p.Tool.Commit = "fffffff" }},
		{"started", func(p *Predicate) { p.Started = p.Started.Add(-time.Hour) }},
		{"finished", func(p *Predicate) { p.Finished = p.Finished.Add(time.Minute) }},
		{"plan", func(p *Predicate) { p.Plan = evidence.Digest(other) }},
		{"runbook", func(p *Predicate) { p.Runbook = evidence.Digest(other) }},
		{"verdict", func(p *Predicate) { p.Verdict.Digest = evidence.Digest(other) }},
		{"verdict", func(p *Predicate) { p.Verdict.Outcome = evidence.Pass }},
		{"coverage", func(p *Predicate) { p.Coverage.Measured = 2 }},
		{"passedTests", func(p *Predicate) { p.PassedTests = []string{"copy"} }},
		{"inconclusiveTests", func(p *Predicate) { p.InconclusiveTests = []string{} }},
		{"errorTests", func(p *Predicate) { p.ErrorTests = []string{"copy"} }},
		{"failedTests", func(p *Predicate) { p.FailedTests = []string{"copy"} }},
		{"open", func(p *Predicate) { p.Open = OpenPoints{Points: []OpenPoint{}} }},
		{"cuts", func(p *Predicate) { p.Cuts = Cuts{Attempts: []CutAttempt{}} }},
		{"retried", func(p *Predicate) { p.Retried.Total = 1 }},
		{"simulated", func(p *Predicate) { p.Simulated = true }},
		{"sharedMachine", func(p *Predicate) { p.SharedMachine = true }},
		{"narrowed", func(p *Predicate) { p.Narrowed = []string{} }},
		{"offContract", func(p *Predicate) { p.OffContract = []string{"x"} }},
		{"nodes", func(p *Predicate) { p.Nodes.Reached = 2 }},
		{"journal", func(p *Predicate) { p.Journal.Records-- }},
		{"journal", func(p *Predicate) { p.Journal.Head = evidence.Digest(other) }},
		{"files", func(p *Predicate) { p.Files.Count++ }},
		{"merkle", func(p *Predicate) { p.Merkle.Size++ }},
	} {
		t.Run(c.field, func(t *testing.T) {
			p := deriveFrom(t, dir)
			c.alter(p)
			changed, err := encodeLine(p)
			must(t, err)
			text := strings.Replace(string(payload), predicateOf(t, string(payload)), string(changed), 1)
			write(t, dir, evidence.SignaturePath, signedPayload(t, s, payloadType, []byte(text)))
			result := checkDir(t, dir, policy)
			wantStep(t, result.Steps[0])
			wantStep(t, result.Steps[1], CodePredicate)
			if want := "the signed " + c.field + " is not that of the files"; result.Steps[1].Failures[0].Message != want {
				t.Errorf("message %q, want %q", result.Steps[1].Failures[0].Message, want)
			}
		})
	}
}

func TestNewerMinorIsRead(t *testing.T) {
	dir, s, policy := signedRun(t)
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	newer := strings.Replace(string(payload), `"minor":0,"run"`, `"minor":7,"later":{"x":1},"run"`, 1)
	write(t, dir, evidence.SignaturePath, signedPayload(t, s, payloadType, []byte(newer)))
	result := checkDir(t, dir, policy)
	wantStep(t, result.Steps[1])
	if !strings.Contains(result.Steps[1].Summary, "newer minor version (7)") {
		t.Errorf("summary %q does not say so", result.Steps[1].Summary)
	}
	twice := strings.Replace(newer, `"later":`, `"later":0,"later":`, 1)
	wantStep(t, step2(t, dir, signedPayload(t, s, payloadType, []byte(twice)), policy), CodeStatement)
}

func TestSignedByAnotherKey(t *testing.T) {
	dir, s, policy := signedRun(t)
	other := newSigner(t)
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	byOther := signedPayload(t, other, payloadType, payload)
	ownHint, err := Hint(s.Public())
	must(t, err)
	otherHint, err := Hint(other.Public())
	must(t, err)

	t.Run("unknown key", func(t *testing.T) {
		step := step2(t, dir, byOther, policy)
		wantStep(t, step, CodeKeyUnknown)
		if f := step.Failures[0]; !strings.Contains(f.Actual, otherHint) || !strings.HasPrefix(f.Expected, "sha256:") {
			t.Errorf("failure does not name the keys: %+v", f)
		}
	})
	t.Run("unknown key under the operator's hint", func(t *testing.T) {
		forged := strings.Replace(string(byOther), otherHint, ownHint, 1)
		wantStep(t, step2(t, dir, []byte(forged), policy), CodeSignature)
	})
	both := policy
	both.Keys = append(both.Keys, Key{Name: "fabric", Owner: "fabric", PEM: publicPEM(t, other.Public())})
	t.Run("trusted key of another role", func(t *testing.T) {
		both.Roles = append(both.Roles, Role{Name: "release", AnyOf: []string{"fabric"}, Quorum: 1})
		step := step2(t, dir, byOther, both)
		wantStep(t, step, CodeKeyUnknown)
		if !strings.Contains(step.Failures[0].Message, `"fabric", which the trust policy does not bind to the role "operator"`) {
			t.Errorf("message %q", step.Failures[0].Message)
		}
	})
	t.Run("trusted key without a role", func(t *testing.T) {
		both.Roles = policy.Roles
		wantStep(t, step2(t, dir, byOther, both), CodeKeyUnknown)
	})
	t.Run("hint steers nobody", func(t *testing.T) {
		both.Roles = []Role{{Name: RoleOperator, AnyOf: []string{"lead", "fabric"}, Quorum: 1}}
		for name, bundle := range map[string]string{
			"lead":   strings.Replace(string(read(t, dir, evidence.SignaturePath)), ownHint, otherHint, 1),
			"fabric": strings.Replace(string(byOther), otherHint, ownHint, 1),
		} {
			step, _, signer, _ := CheckSignature([]byte(bundle), read(t, dir, evidence.ManifestPath), read(t, dir, evidence.SumsPath), both, time.Now())
			wantStep(t, step)
			if signer.Key != name {
				t.Errorf("signer is %q, want %q", signer.Key, name)
			}
		}
	})
	t.Run("nothing is told of what strangers signed", func(t *testing.T) {
		write(t, dir, evidence.SignaturePath, byOther)
		result := checkDir(t, dir, policy)
		if result.Payload != nil || result.PayloadDigest != "" || result.Signer != (Signatory{}) {
			t.Errorf("result of an unknown signer: %+v", result)
		}
	})
}

func TestNoTrustFromTheEvidence(t *testing.T) {
	dir, s, policy := signedRun(t)
	t.Run("not signed", func(t *testing.T) {
		bundle := read(t, dir, evidence.SignaturePath)
		must(t, os.Remove(filepath.Join(dir, evidence.SignaturePath)))
		result := checkDir(t, dir, policy)
		wantStep(t, result.Steps[0])
		wantStep(t, result.Steps[1], CodeNoSignature)
		write(t, dir, evidence.SignaturePath, bundle)
	})
	t.Run("policies that trust nobody", func(t *testing.T) {
		for _, p := range []Policy{{}, {Require: Require{Level: Intact}}} {
			step := checkDir(t, dir, p).Steps[1]
			if step.State != Failed || len(step.Failures) == 0 || step.Failures[0].Code != CodePolicy {
				t.Errorf("an empty policy gives %s %v", step.State, codes(step))
			}
		}
	})
	t.Run("algorithm that is not accepted", func(t *testing.T) {
		key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		must(t, err)
		p := policy
		p.Keys = append([]Key{{Name: "big", Owner: "x", PEM: publicPEM(t, key.Public())}}, policy.Keys...)
		wantStep(t, checkDir(t, dir, p).Steps[1], CodeAlgorithm)
	})
	t.Run("link in place of the bundle", func(t *testing.T) {
		must(t, os.Rename(filepath.Join(dir, evidence.SignaturePath), filepath.Join(dir, "..", "elsewhere")))
		must(t, os.Symlink("../elsewhere", filepath.Join(dir, evidence.SignaturePath)))
		result := checkDir(t, dir, policy)
		wantFailure(t, result.Steps[0], CodeFileType, evidence.SignaturePath)
		wantStep(t, result.Steps[1], CodeBundle)
		must(t, os.Remove(filepath.Join(dir, evidence.SignaturePath)))
	})
	t.Run("bundle of another run", func(t *testing.T) {
		other := sealedRun(t, change{verdict: func(v *evidence.Verdict) { v.Outcome = evidence.Fail }})
		must(t, Sign(t.Context(), other, s))
		write(t, dir, evidence.SignaturePath, read(t, other, evidence.SignaturePath))
		step := checkDir(t, dir, policy).Steps[1]
		wantFailure(t, step, CodeSubjects, evidence.ManifestPath)
		wantFailure(t, step, CodeSubjects, evidence.SumsPath)
		wantFailure(t, step, CodePredicate, evidence.SignaturePath)
	})
}

func TestKeyValidityAndTimes(t *testing.T) {
	dir, _, policy := signedRun(t)
	fsys := rootFS(t, dir)
	p := deriveFrom(t, dir)
	end := func(d time.Duration) *time.Time { at := p.Finished.Add(d); return &at }
	for _, c := range []struct {
		name     string
		notAfter *time.Time
		at       time.Duration // after the claimed end
		want     []string
	}{
		{"valid now and then", end(time.Hour), time.Minute, nil},
		{"valid to the last moment", end(time.Minute), time.Minute, nil},
		{"expired since", end(time.Minute), time.Hour, []string{CodeKeyExpired}},
		{"expired, judged earlier", end(time.Minute), 0, nil},
		{"expired before the run ended", end(-time.Minute), time.Hour, []string{CodeKeyExpired, CodeKeyExpired}},
		{"finished in the future", nil, -2 * time.Hour, []string{CodeTime}},
		{"finished within the tolerance", nil, -time.Minute, nil},
		{"expired before the end, judged earlier still", end(-time.Minute), -30 * time.Minute, []string{CodeKeyExpired}},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy.Keys[0].NotAfter = c.notAfter
			wantStep(t, Check(fsys, policy, nil, p.Finished.Add(c.at)).Steps[1], c.want...)
		})
	}
}

// The library that cosign and sigstore-go verify with accepts the envelope,
// with the keyid that is written.
func TestStockLibraryVerifies(t *testing.T) {
	dir, s, _ := signedRun(t)
	verify := func(env *dsse.Envelope, key Signer) error {
		verifier, err := signature.LoadVerifierWithOpts(key.Public())
		must(t, err)
		stock, err := dsse.NewEnvelopeVerifier(&sigdsse.VerifierAdapter{SignatureVerifier: verifier, Pub: key.Public()})
		must(t, err)
		_, err = stock.Verify(t.Context(), env)
		return err
	}
	var b struct {
		DSSEEnvelope dsse.Envelope `json:"dsseEnvelope"`
	}
	must(t, json.Unmarshal(read(t, dir, evidence.SignaturePath), &b))
	if b.DSSEEnvelope.Signatures[0].KeyID == "" {
		t.Error("the envelope has no keyid")
	}
	must(t, verify(&b.DSSEEnvelope, s))
	if verify(&b.DSSEEnvelope, newSigner(t)) == nil {
		t.Error("another key verifies")
	}
}

func TestBundleForm(t *testing.T) {
	dir, s, _ := signedRun(t)
	hint, err := Hint(s.Public())
	must(t, err)
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	b := readLoose(t, dir)
	want := fmt.Sprintf(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":{"hint":"%s"}},`+
		`"dsseEnvelope":{"payload":"%s","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"%s","keyid":"%s"}]}}`+"\n",
		hint, base64.StdEncoding.EncodeToString(payload), b.signature()["sig"], s.KeyID())
	if got := string(read(t, dir, evidence.SignaturePath)); got != want {
		t.Errorf("bundle is\n%s\nwant\n%s", got, want)
	}
}
