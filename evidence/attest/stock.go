package attest

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// emptyRoot is a Sigstore trusted root that trusts no service, so that cosign
// asks no network. cosign 2.6 needs the file; 3.1 accepts it.
const emptyRoot = `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`

// StockCommands are the commands, for a POSIX shell, that check an unpacked
// run directory without this program: cosign, then openssl and jq, each
// against the public key file, then sha256sum. Each stands alone and they
// build on each other in this order; small files are written to the current
// directory. The last one prints the files that only one of directory and
// SHA256SUMS has, and so must print nothing.
func StockCommands(dir, keyPath string) []string {
	cosign := func(file string) string {
		return "cosign verify-blob-attestation --key " + shellQuote(keyPath) +
			" --bundle " + shellQuote(filepath.Join(dir, evidence.SignaturePath)) +
			" --type " + PredicateType +
			" --trusted-root empty.json --insecure-ignore-tlog " + shellQuote(filepath.Join(dir, file))
	}
	bundle, inside := shellQuote(filepath.Join(dir, evidence.SignaturePath)), shellQuote(dir)
	return []string{
		"printf '%s' " + shellQuote(emptyRoot) + " > empty.json",
		cosign(evidence.ManifestPath),
		cosign(evidence.SumsPath),
		"jq -r .dsseEnvelope.payload " + bundle + " | base64 -d > statement.json",
		"jq -r '.dsseEnvelope.signatures[0].sig' " + bundle + " | base64 -d > statement.sig",
		fmt.Sprintf("{ printf 'DSSEv1 %d %s %%d ' \"$(wc -c < statement.json)\"; cat statement.json; } > statement.pae", len(payloadType), payloadType),
		"openssl dgst -sha256 -verify " + shellQuote(keyPath) + " -signature statement.sig statement.pae",
		`jq -r '.subject[] | "\(.digest.sha256)  \(.name)"' statement.json | (cd ` + inside + " && sha256sum --strict -c -)",
		"(cd " + inside + " && sha256sum --strict --quiet -c SHA256SUMS)",
		"(cd " + inside + " && { cut -c67- SHA256SUMS; find . ! -type d | sed 's|^\\./||'" +
			" | grep -vxE 'evidence\\.sigstore\\.json|manifest\\.json|SHA256SUMS|approvals/[a-z0-9._-]+\\.sigstore\\.json'; } | LC_ALL=C sort | uniq -u)",
	}
}

// shellQuote makes one word of text for a POSIX shell; a plain word stays as
// it is.
func shellQuote(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
