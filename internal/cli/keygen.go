package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence/attest"
)

type keygenOptions struct {
	out        string
	encrypt    bool
	passphrase string
	noInput    bool
}

func newKeygenCmd(p *Process) *cobra.Command {
	opts := &keygenOptions{}
	cmd := &cobra.Command{
		Use:   "keygen --out PREFIX",
		Short: "Make a signing key pair: PREFIX.key and PREFIX.pub",
		Long: `Make an ECDSA P-256 key pair. PREFIX.key is private and can be encrypted, in
cosign's form; PREFIX.pub goes to everyone who verifies. Neither file may
exist; their folder is made, for you alone, where it does not.`,
		Example: `  rackproof keygen --out keys/operator --encrypt
  rackproof keygen --out keys/operator --encrypt --passphrase env://KEY_PASSPHRASE`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runKeygen(p, opts) },
	}
	cmd.Flags().StringVar(&opts.out, "out", "", "prefix of the two files (required)")
	cmd.Flags().BoolVar(&opts.encrypt, "encrypt", false, "encrypt the private key with a passphrase")
	cmd.Flags().StringVar(&opts.passphrase, "passphrase", "", "where the passphrase comes from: env://NAME, a file or \"prompt\"; implies --encrypt")
	cmd.Flags().BoolVar(&opts.noInput, "no-input", false, "never prompt")
	readsEnvironment(cmd, "passphrase", "no-input")
	return cmd
}

func runKeygen(p *Process, opts *keygenOptions) error {
	if opts.out == "" {
		return fail(ExitUsage, errors.New("keygen needs --out PREFIX"), "rackproof keygen --out keys/operator writes keys/operator.key and keys/operator.pub")
	}
	var passphrase []byte
	// A passphrase that was named is never left unused.
	opts.encrypt = opts.encrypt || opts.passphrase != ""
	if opts.encrypt {
		var err error
		if passphrase, err = newPassphrase(p, opts); err != nil {
			return err
		}
	}
	private, public, err := attest.GenerateKey(passphrase)
	if err != nil {
		return err
	}
	// Whoever may list a folder of keys knows whose to look for.
	if err := os.MkdirAll(filepath.Dir(opts.out), 0o700); err != nil {
		return plainPath(err)
	}
	if err := writeNew(opts.out+".key", 0o600, writeBytes(private)); err != nil {
		return err
	}
	if err := writeNew(opts.out+".pub", 0o644, writeBytes(public)); err != nil {
		return errors.Join(err, os.Remove(opts.out+".key"))
	}
	key, err := attest.ParsePublicKey(public)
	if err != nil {
		return err
	}
	fingerprint, err := attest.Fingerprint(key)
	if err != nil {
		return err
	}
	out := newLines(p.Stdout)
	out.Line("private   %s.key%s", opts.out, map[bool]string{true: " (encrypted)", false: " (not encrypted: keep it where only you can read it)"}[opts.encrypt])
	out.Line("public    %s.pub", opts.out)
	out.Line("key       %s", string(fingerprint))
	return out.Err
}

// newPassphrase reads a passphrase; from a prompt it is asked twice.
func newPassphrase(p *Process, opts *keygenOptions) ([]byte, error) {
	first, err := p.passphrase(opts.passphrase, opts.noInput, "Passphrase for "+opts.out+".key")
	if err != nil || opts.passphrase != "" && opts.passphrase != "prompt" {
		return first, err
	}
	again, err := p.passphrase("prompt", opts.noInput, "Once more")
	if err != nil {
		return nil, err
	}
	if string(first) != string(again) {
		return nil, errors.New("the two passphrases differ")
	}
	return first, nil
}

func writeBytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}
