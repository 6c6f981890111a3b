package attest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/rackproof/rackproof/evidence"
)

// pathUnfinished holds the signature until it is whole. A crash may leave it
// behind; the next Sign removes it.
const pathUnfinished = evidence.SignaturePath + ".new"

// Sign signs the sealed run in dir and writes evidence.sigstore.json; a
// signature that is there already is replaced. Before anything is written,
// the run must pass steps 1 and 2 with the new signature, so that a signer
// that signs something else is found out.
func Sign(ctx context.Context, dir string, s Signer) error {
	if err := signDir(ctx, dir, s); err != nil {
		return fmt.Errorf("sign %s: %w", dir, err)
	}
	return nil
}

func signDir(ctx context.Context, dir string, s Signer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(pathUnfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	bundle, err := signFS(ctx, root.FS(), s)
	if err != nil {
		return err
	}
	return replace(root, bundle)
}

// signFS makes the bundle of a sealed run and verifies it.
func signFS(ctx context.Context, fsys fs.FS, s Signer) ([]byte, error) {
	if _, err := fs.Stat(fsys, evidence.ManifestPath); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the run is not sealed: it has no manifest.json")
	}
	payload, predicate, err := buildStatement(fsys)
	if err != nil {
		return nil, err
	}
	sig, err := s.Sign(ctx, payloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", s.KeyID(), err)
	}
	hint, err := Hint(s.Public())
	if err != nil {
		return nil, err
	}
	bundle, err := encodeBundle(payload, sig, s.KeyID(), hint)
	if err != nil {
		return nil, err
	}
	policy, err := ownPolicy(s)
	if err != nil {
		return nil, err
	}
	result := check(fsys, document{data: bundle}, policy, nil, predicate.Finished)
	var wrong []error
	for _, step := range result.Steps[:2] {
		for _, failure := range step.Failures {
			wrong = append(wrong, errors.New(failure.String()))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("nothing was written: %w", errors.Join(wrong...))
	}
	if result.PayloadDigest != evidence.DigestOf(payload) {
		return nil, errors.New("nothing was written: the signature is over another payload")
	}
	return bundle, nil
}

// ownPolicy trusts the signer's own key and nothing else.
func ownPolicy(s Signer) (Policy, error) {
	text, err := cryptoutils.MarshalPublicKeyToPEM(s.Public())
	if err != nil {
		return Policy{}, fmt.Errorf("key %s: %w", s.KeyID(), err)
	}
	const name = "signer"
	return Policy{
		Keys:    []Key{{Name: name, Owner: name, PEM: text}},
		Roles:   []Role{{Name: RoleOperator, AnyOf: []string{name}, Quorum: 1}},
		Require: Require{Level: Attested},
	}, nil
}

// replace writes the bundle so that either the old or the new one is there,
// whole.
func replace(root *os.Root, bundle []byte) (err error) {
	file, err := root.OpenFile(pathUnfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(pathUnfinished))
		}
	}()
	_, err = file.Write(bundle)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := root.Rename(pathUnfinished, evidence.SignaturePath); err != nil {
		return err
	}
	return syncDir(root)
}

func syncDir(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
