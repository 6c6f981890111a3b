package sim_test

import "testing"

func TestFind(t *testing.T) {
	clean := []string{"find", "/tmp/w", "-depth", "(", "(", "-type", "f", "-name", "data.*", "-o", "-type", "d", "-empty", ")", "-delete", ")", "-o", "-print"}
	onHosts(t, func(b bench) {
		b.says(1, "", "find: '/tmp/w': No such file or directory\n", "gpu001", clean...)
		b.says(0, "", "", "gpu001", "mkdir", "-p", "/tmp/w/sub.x", "/tmp/w/sub")
		for _, name := range []string{"data.0", "data.10", "keep", "sub/data.1"} {
			b.says(0, "", "", "gpu001", "tee", "/tmp/w/"+name)
		}
		b.says(0, "/tmp/w\n/tmp/w/data.0\n/tmp/w/data.10\n/tmp/w/keep\n/tmp/w/sub\n/tmp/w/sub/data.1\n/tmp/w/sub.x\n", "", "gpu001", "find", "/tmp/w")
		// What is not the check's own stays, and is named.
		b.says(0, "/tmp/w/keep\n/tmp/w\n", "", "gpu001", clean...)
		b.says(0, "", "", "gpu001", "rm", "/tmp/w/keep")
		b.says(0, "", "", "gpu001", clean...)
		b.says(1, "", "find: '/tmp/w': No such file or directory\n", "gpu001", "find", "/tmp/w")
		for _, argv := range [][]string{
			{"find"}, {"find", "-type", "f"}, {"find", "/tmp", "-exec", "rm"}, {"find", "/tmp", "("}, {"find", "/tmp", "(", "-empty"},
			{"find", "/tmp", ")"}, {"find", "/tmp", "-name", "[a"}, {"find", "/tmp", "-o"}, {"find", "/tmp", "-type", "l"},
		} {
			b.refuses("gpu001", argv...)
		}
	})
}
