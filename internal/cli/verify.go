package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/internal/verify"
)

type verifyOptions struct {
	path     string
	trust    string
	minTrust string
	release  string
	at       string
	json     bool
}

func newVerifyCmd(p *Process) *cobra.Command {
	opts := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify BUNDLE --trust FILE",
		Short: "Verify a bundle: bytes, signature, plan, measurements, verdict, rules",
		Long: `Verify an archive or a run directory against your own trust policy. The
network is never asked. See "rackproof help trust" for the seven steps.`,
		Example: `  rackproof verify pod7.evidence.tar.zst --trust trust.hcl
  rackproof verify pod7.evidence.tar.zst --trust trust.hcl --release final --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.path = args[0]
			return runVerify(p, cmd, opts)
		},
	}
	cmd.Flags().StringVar(&opts.trust, "trust", "", "trust policy (required)")
	readsEnvironment(cmd, "trust")
	cmd.Flags().StringVar(&opts.minTrust, "min-trust", "", "required level instead of the policy's: intact, attested or reproduced")
	cmd.Flags().StringVar(&opts.release, "release", "", "judge this release only, instead of all of the plan")
	cmd.Flags().StringVar(&opts.at, "at", "", "moment to judge keys and ages for, as RFC 3339; default: now")
	cmd.Flags().BoolVar(&opts.json, "json", false, "print one JSON document")
	return cmd
}

func runVerify(p *Process, cmd *cobra.Command, opts *verifyOptions) error {
	if opts.trust == "" {
		return fail(ExitUsage, errors.New("verify needs a trust policy: nothing in a bundle is trusted by itself"),
			"rackproof verify "+opts.path+" --trust trust.hcl; rackproof trust init writes one")
	}
	policy, err := loadTrust(p, cmd, opts.trust)
	if err != nil {
		return err
	}
	o, err := opts.options(p, policy)
	if err != nil {
		return err
	}
	report, err := verify.Path(cmd.Context(), opts.path, o)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(ExitUsage, plainPath(err))
	}
	if err != nil {
		return plainPath(err)
	}
	if opts.json {
		err = printJSON(p.Stdout, report)
	} else {
		err = showVerification(p, opts.path, report)
	}
	if err != nil {
		return err
	}
	return verificationError(report)
}

func (opts *verifyOptions) options(p *Process, policy attest.Policy) (verify.Options, error) {
	o := verify.Options{Policy: policy, Known: known(), Release: opts.release, At: p.Now()}
	if opts.minTrust != "" {
		var level attest.Level
		if err := level.UnmarshalText([]byte(opts.minTrust)); err != nil || level == attest.Unknown {
			return o, usageError("--min-trust %q: want intact, attested or reproduced", opts.minTrust)
		}
		o.MinLevel = &level
	}
	if opts.at != "" {
		at, err := time.Parse(time.RFC3339, opts.at)
		if err != nil {
			return o, usageError("--at %q: want a time such as 2026-11-30T14:02:11Z", opts.at)
		}
		o.At = at
	}
	return o, nil
}

// verificationError is the error of a verification that did not end in
// acceptance, or nil.
func verificationError(r *verify.Report) error {
	failed := 0
	for _, s := range r.Steps {
		if s.State == attest.Failed {
			failed++
		}
	}
	switch r.Exit {
	case 0:
		return nil
	case verify.ExitUntrusted:
		if failed == 0 {
			return fail(Exit(r.Exit), fmt.Errorf("the evidence is not trusted: its level is %s, and %s is required", r.Level, r.Required.Level))
		}
		return fail(Exit(r.Exit), fmt.Errorf("the evidence is not trusted: %d of 7 steps failed", failed), "each failure above has a code, a place and what to do next")
	case verify.ExitFail:
		return fail(Exit(r.Exit), errors.New("the evidence is trusted, and it says that the acceptance failed"))
	case verify.ExitInconclusive:
		return fail(Exit(r.Exit), errors.New("the evidence is trusted, and it says that the acceptance is inconclusive"))
	}
	return fail(Exit(r.Exit), fmt.Errorf("not accepted: the evidence is trusted, and an approval or a rule is not met: %s", strings.Join(unmet(r), ", ")))
}

// unmet are the codes of the rules that are not met, each once.
func unmet(r *verify.Report) []string {
	var codes []string
	for _, s := range r.Steps {
		for _, f := range s.Failures {
			if !slices.Contains(codes, f.Code) {
				codes = append(codes, f.Code)
			}
		}
	}
	return codes
}
