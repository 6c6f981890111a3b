package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// treeHash is MTH of RFC 6962, section 2.1, word for word.
func treeHash(leaves [][]byte) []byte {
	if len(leaves) == 1 {
		sum := sha256.Sum256(append([]byte{0}, leaves[0]...))
		return sum[:]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	sum := sha256.Sum256(append(append([]byte{1}, treeHash(leaves[:k])...), treeHash(leaves[k:])...))
	return sum[:]
}

// auditPath is PATH of RFC 6962, section 2.1.1.
func auditPath(m int, leaves [][]byte) [][]byte {
	if len(leaves) == 1 {
		return nil
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	if m < k {
		return append(auditPath(m, leaves[:k]), treeHash(leaves[k:]))
	}
	return append(auditPath(m-k, leaves[k:]), treeHash(leaves[:k]))
}

func TestMerkleRootIsThatOfRFC6962(t *testing.T) {
	var leaves [][]byte
	for n := 1; n <= 70; n++ {
		leaves = append(leaves, fmt.Appendf(nil, `{"path":"run/%d"}`, n))
		tree, err := merkleOf(leaves)
		must(t, err)
		if want := (Merkle{Alg: "rfc6962-sha256", Root: hexOf(treeHash(leaves)), Size: int64(n)}); tree != want {
			t.Fatalf("tree of %d leaves is %+v, want %+v", n, tree, want)
		}
		root, err := hex.DecodeString(tree.Root)
		must(t, err)
		hasher := rfc6962.DefaultHasher
		for m := range n {
			path := auditPath(m, leaves)
			must(t, proof.VerifyInclusion(hasher, uint64(m), uint64(n), hasher.HashLeaf(leaves[m]), path, root))
			if proof.VerifyInclusion(hasher, uint64(m), uint64(n), hasher.HashLeaf([]byte("forged")), path, root) == nil {
				t.Fatalf("a forged leaf %d of %d is in the tree", m, n)
			}
		}
	}
	_, err := merkleOf(nil)
	wantError(t, err, "no leaves")
}
