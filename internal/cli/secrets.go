package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence/attest"
)

// keyOptions are the flags of every command that signs.
type keyOptions struct {
	key        string
	passphrase string
	noInput    bool
}

func (o *keyOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.key, "key", "", "private key that signs: a file or env://NAME")
	cmd.Flags().StringVar(&o.passphrase, "passphrase", "", "where an encrypted key's passphrase comes from: env://NAME, a file or \"prompt\"")
	cmd.Flags().BoolVar(&o.noInput, "no-input", false, "never prompt")
	readsEnvironment(cmd, "key", "passphrase", "no-input")
}

// signer unlocks the key and proves that it signs.
func (o *keyOptions) signer(p *Process, cmd *cobra.Command) (attest.Signer, error) {
	text, err := p.secret(o.key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	signer, err := attest.LoadSigner(text, func() ([]byte, error) { return p.passphrase(o.passphrase, o.noInput, "Passphrase of "+o.key) })
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", o.key, err)
	}
	if err := attest.TestSign(cmd.Context(), signer); err != nil {
		return nil, fmt.Errorf("key %s: %w", o.key, err)
	}
	return signer, nil
}

// secret reads env://NAME or a file.
func (p *Process) secret(source string) ([]byte, error) {
	name, isEnv := strings.CutPrefix(source, "env://")
	if !isEnv {
		text, err := os.ReadFile(source)
		if err != nil {
			return nil, fail(ExitUsage, plainPath(err))
		}
		return text, nil
	}
	value := p.getenv(name)
	if value == "" {
		return nil, usageError("environment variable %s is not set", name)
	}
	return []byte(value), nil
}

// passphrase reads a passphrase from source; without one, from a prompt.
func (p *Process) passphrase(source string, noInput bool, prompt string) ([]byte, error) {
	if source != "" && source != "prompt" {
		secret, err := p.secret(source)
		if err != nil {
			return nil, err
		}
		return checkPassphrase(bytes.TrimRight(secret, "\r\n"))
	}
	if noInput || !p.interactive() {
		return nil, fail(ExitUsage, errors.New("a passphrase is needed, and there is nobody to ask"), "name its source: --passphrase env://NAME or --passphrase FILE")
	}
	fmt.Fprintf(p.Stderr, "%s: ", prompt)
	secret, err := p.ReadSecret()
	fmt.Fprintln(p.Stderr)
	if err != nil {
		return nil, err
	}
	return checkPassphrase(secret)
}

func checkPassphrase(secret []byte) ([]byte, error) {
	if len(secret) == 0 {
		return nil, errors.New("the passphrase is empty")
	}
	return secret, nil
}
