package cli

import (
	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/reports"
)

const mediaVersion = "application/vnd.rackproof.version.v1+json"

// versionInfo is what `version --json` prints.
type versionInfo struct {
	MediaType string        `json:"mediaType"`
	Minor     int           `json:"minor"`
	Schema    schemaVersion `json:"schema"`
	Tool      evidence.Tool `json:"tool"`
}

type schemaVersion struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

// schemaMajor is the number in every media type of this build.
const schemaMajor = 1

func newVersionCmd(p *Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of rackproof, its schema and its checks",
		Example: `  rackproof version
  rackproof version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			tool, err := p.tool()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.Stdout, versionInfo{MediaType: mediaVersion, Schema: schemaVersion{schemaMajor, evidence.Minor}, Tool: tool})
			}
			out := &reports.Printer{W: p.Stdout}
			out.Line("rackproof %s", tool.Version)
			out.Line("commit    %s", orUnknown(tool.Commit))
			out.Line("go        %s %s", tool.Go, tool.Platform)
			out.Line("schema    v%d.%d", schemaMajor, evidence.Minor)
			out.Line("program   %s", string(tool.Digest))
			out.Line("probe     none: plain mode, no program is pushed to the nodes")
			return out.Err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
