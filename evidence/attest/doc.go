// Package attest signs a sealed run and checks what others signed: steps 1 to
// 3 of verification.
//
// The operator's signature is an in-toto Statement v1 about manifest.json and
// SHA256SUMS, in a DSSE envelope, in a Sigstore bundle v0.3, so that cosign,
// openssl and sha256sum can check the same files without this package (see
// StockCommands). The trust policy is a plain value that the verifier brings;
// nothing that lies in the evidence is ever read as trust.
//
// Times in a statement are claims of the signer: no timestamp authority and
// no log is asked.
package attest
