package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest is "sha256:" and 64 lower-case hex digits.
type Digest string

const digestPrefix = "sha256:"

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return DigestFromSum(sum[:])
}

// DigestFromSum is the digest with the given 32 raw bytes.
func DigestFromSum(sum []byte) Digest { return Digest(digestPrefix + hex.EncodeToString(sum)) }

// ParseDigest accepts exactly the form of a Digest.
func ParseDigest(text string) (Digest, error) {
	rest, ok := strings.CutPrefix(text, digestPrefix)
	if !ok || len(rest) != 2*sha256.Size || strings.Trim(rest, "0123456789abcdef") != "" {
		return "", fmt.Errorf("digest %q: want sha256: and 64 lower-case hex digits", text)
	}
	return Digest(text), nil
}

// Hex is the digest without its prefix.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// UnmarshalText refuses anything but a well-formed digest.
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDigest(string(text))
	return err
}
