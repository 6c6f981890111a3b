// Rackproof runs the acceptance tests of a GPU cluster and seals what it
// measured into evidence that others can verify.
package main

import (
	"os"

	"github.com/rackproof/rackproof/internal/cli"
)

func main() { os.Exit(cli.Main(cli.System())) }
