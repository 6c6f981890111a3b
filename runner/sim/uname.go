package sim

import (
	"context"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// uname knows -s, -n, -r and -m, alone or together; without one it is -s.
func uname(_ context.Context, c *Call) sshserver.Exit {
	asked := strings.ReplaceAll(strings.Join(c.Argv[1:], ""), "-", "")
	if asked == "" {
		asked = "s"
	}
	if strings.Trim(asked, "snrm") != "" {
		return c.usage("%q", c.Argv)
	}
	var words []string
	for _, part := range []struct{ option, text string }{{"s", "Linux"}, {"n", c.Node.Name}, {"r", rack.KernelRelease}, {"m", "x86_64"}} {
		if strings.Contains(asked, part.option) {
			words = append(words, part.text)
		}
	}
	c.printf("%s\n", strings.Join(words, " "))
	return code(0)
}
