package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/internal/diag"
	"github.com/rackproof/rackproof/runbook"
)

func newTrustCmd(p *Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Write a trust policy; what verify trusts, and what its levels mean",
		Long:  trustTopic,
		Example: `  rackproof trust init --key keys/operator.pub -o trust.hcl
  rackproof trust init --name customer --key keys/a.pub --key keys/b.pub`,
	}
	asGroup(p, cmd)
	cmd.AddCommand(newTrustInitCmd(p))
	return cmd
}

type trustInitOptions struct {
	keys      []string
	name      string
	out       string
	simulated bool
}

func newTrustInitCmd(p *Process) *cobra.Command {
	opts := &trustInitOptions{}
	cmd := &cobra.Command{
		Use:   "init --key PUBLIC...",
		Short: "Write a trust policy that accepts these operators' keys",
		Long: `Write a trust policy that accepts runs signed with one of the given public
keys, requires the level reproduced, and accepts nothing that a contract would
not. The keys must lie in the policy's folder or below it.`,
		Example: `  rackproof trust init --key keys/operator.pub -o trust.hcl
  rackproof trust init --name customer --key keys/a.pub --key keys/b.pub -o trust.hcl`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runTrustInit(p, opts) },
	}
	cmd.Flags().StringArrayVar(&opts.keys, "key", nil, "public key of an operator (repeatable, required)")
	cmd.Flags().StringVar(&opts.name, "name", "verifier", "name of the policy")
	cmd.Flags().BoolVar(&opts.simulated, "accept-simulated", false, "accept runs on a simulated rack, for a rehearsal")
	cmd.Flags().StringVarP(&opts.out, "output", "o", "trust.hcl", "file to write, which must not exist; - for stdout")
	return cmd
}

func runTrustInit(p *Process, opts *trustInitOptions) error {
	if len(opts.keys) == 0 {
		return fail(ExitUsage, errors.New("trust init needs a public key"), "rackproof trust init --key keys/operator.pub")
	}
	if !identifier.MatchString(opts.name) {
		return usageError("--name %q: want letters, digits, - and _, beginning with a letter", opts.name)
	}
	folder := "."
	if opts.out != "-" {
		folder = filepath.Dir(opts.out)
	}
	var keys []trustKey
	for _, path := range opts.keys {
		key, err := readTrustKey(path, folder)
		if err != nil {
			return err
		}
		for _, other := range keys {
			if other.name == key.name {
				return usageError("--key %s: two keys would be named %q: rename one of the files", path, key.name)
			}
		}
		keys = append(keys, key)
	}
	text := trustText(opts.name, keys, opts.simulated)
	if opts.out == "-" {
		_, err := io.WriteString(p.Stdout, text)
		return err
	}
	if err := writeNew(opts.out, 0o644, writeBytes([]byte(text))); err != nil {
		return err
	}
	out := newLines(p.Stdout)
	out.Line("policy    %s", opts.out)
	for _, k := range keys {
		out.Line("key       %s %s", k.name, k.fingerprint)
	}
	return out.Err
}

var identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

type trustKey struct{ name, file, fingerprint string }

// readTrustKey checks that path holds a public key which can be named from
// folder.
func readTrustKey(path, folder string) (trustKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return trustKey{}, fail(ExitUsage, fmt.Errorf("--key: %w", plainPath(err)))
	}
	public, err := attest.ParsePublicKey(text)
	if err != nil {
		return trustKey{}, fail(ExitUsage, fmt.Errorf("--key %s: %w", path, err))
	}
	fingerprint, err := attest.Fingerprint(public)
	if err != nil {
		return trustKey{}, err
	}
	from, errFrom := filepath.Abs(folder)
	to, errTo := filepath.Abs(path)
	relative, errRel := filepath.Rel(from, to)
	if err := errors.Join(errFrom, errTo, errRel); err != nil {
		return trustKey{}, err
	}
	if !filepath.IsLocal(relative) {
		return trustKey{}, fail(ExitUsage, fmt.Errorf("--key %s lies outside of the policy's folder %s", path, from), "copy the key beside the policy, so that the two travel together")
	}
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	name = regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(name, "_")
	if !identifier.MatchString(name) {
		name = "key_" + name
	}
	return trustKey{name: name, file: filepath.ToSlash(relative), fingerprint: string(fingerprint)}, nil
}

func trustText(name string, keys []trustKey, simulated bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "trust %q {\n", name)
	var references []string
	for _, k := range keys {
		fmt.Fprintf(&out, "  # %s\n  key %q {\n    file  = %q\n    owner = %q\n  }\n\n", k.fingerprint, k.name, k.file, k.name)
		references = append(references, "key."+k.name)
	}
	fmt.Fprintf(&out, `  role "operator" {
    any_of = [%s]
    quorum = 1
  }

  require {
    level = "reproduced"
  }

  accept {
    simulated    = %t
    narrowed     = false
    off_contract = false
    retried      = 0
    interrupted  = 0
  }
}
`, strings.Join(references, ", "), simulated)
	return out.String()
}

// loadTrust reads a trust policy. Whatever is wrong with it is exit 2.
func loadTrust(p *Process, cmd *cobra.Command, path string) (attest.Policy, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return attest.Policy{}, fail(ExitUsage, fmt.Errorf("--trust: %w", plainPath(err)))
	}
	defer root.Close()
	if _, err := root.Stat(filepath.Base(path)); err != nil {
		return attest.Policy{}, fail(ExitUsage, fmt.Errorf("--trust %s: %w", path, errors.Unwrap(err)), "rackproof trust init writes a trust policy")
	}
	policy, files, diags := runbook.LoadTrust(root.FS(), filepath.Base(path))
	diags, files = named(diags, files, filepath.Dir(path), nil)
	if len(diags) > 0 {
		if err := diag.Text(p.Stderr, diags, files, p.colored(cmd, p.StderrTTY), p.Width); err != nil {
			return attest.Policy{}, err
		}
	}
	if diags.HasErrors() {
		return attest.Policy{}, fail(ExitUsage, fmt.Errorf("the trust policy %s is invalid: %s", path, evidence.Count(len(diags.Errs()), "error")))
	}
	if err := policy.Validate(); err != nil {
		return attest.Policy{}, fail(ExitUsage, fmt.Errorf("the trust policy %s is invalid: %w", path, err))
	}
	return policy, nil
}
