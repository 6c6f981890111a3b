package attest

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// merkleOf hashes the manifest's entry lines, as they are stored, into a
// tree.
func merkleOf(leaves [][]byte) (Merkle, error) {
	if len(leaves) == 0 {
		return Merkle{}, errors.New("merkle tree: no leaves")
	}
	hasher := rfc6962.DefaultHasher
	tree := (&compact.RangeFactory{Hash: hasher.HashChildren}).NewEmptyRange(0)
	for _, leaf := range leaves {
		if err := tree.Append(hasher.HashLeaf(leaf), nil); err != nil {
			return Merkle{}, fmt.Errorf("merkle tree: %w", err)
		}
	}
	root, err := tree.GetRootHash(nil)
	if err != nil {
		return Merkle{}, fmt.Errorf("merkle tree: %w", err)
	}
	return Merkle{Alg: MerkleAlg, Root: hex.EncodeToString(root), Size: int64(len(leaves))}, nil
}
