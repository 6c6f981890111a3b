package sim_test

import "testing"

func TestTextTools(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		run("uname", "-n").want(t, 0, "gpu001\n")
		run("uname", "-sr").want(t, 0, "Linux 5.15.0-113-generic\n")
		run("sed", "-n", "-E", "-e", `/nothing/d`, "-e", `s/^NAME="([A-Z][a-z]+)"$/name: \1 (\/etc)/p`, "/etc/os-release").want(t, 0, "name: Ubuntu (/etc)\n")
		run("sed", "-E", "/^(PRETTY_)?NAME/d", "/etc/os-release").want(t, 0, "VERSION_ID=\"22.04\"\nID=ubuntu\n")
		run("awk", `/^[A-Z_]+=/ { sub(/=.*$/, ""); if ($0 ~ /NAME$/) sub(/NAME/, "name"); else if ($0 ~ /^ID/) next
  if (!($0 in seen) && n < 2) { seen[$0] = 1; n++; print } else print "more" }
END { print "end of " n+0 " lines" }`, "/etc/os-release", "/etc/os-release").want(t, 0, "PRETTY_name\nname\nmore\nmore\nmore\nmore\nend of 2 lines\n")
		run("mkdir", "-p", "/tmp/a/b")
		run("all_reduce_perf", "-b", "8", "-e", "8", "-g", "2", "-J", "/tmp/a/one.json")
		run("find", "/tmp/a", "-maxdepth", "1", "-type", "f", "-name", "*.json", "-exec", "sed", "-n", "-E", "-e", `s/^\{"version":([0-9]+),.*/version \1/p`, "{}", "+").want(t, 0, "version 1")
		run("find", "/tmp/a", "-mindepth", "1", "(", "-type", "f", "-delete", ")", "-o", "-print").want(t, 0, "/tmp/a/b\n")
		for _, refused := range [][]string{
			{"awk", `{ printf "%s", $1 }`, "/etc/os-release"}, {"awk", `/a/ { sub(/a/, "&&") }`, "/etc/os-release"}, {"awk", `/a/ { print`, "/etc/os-release"},
			{"sed", "-n", "-E", "y/a/b/", "/etc/os-release"}, {"sed", "-E", "s/(?:a)/b/", "/etc/os-release"}, {"uname", "-v"}, {"find", "/tmp", "-exec", "cat", "{}", ";"},
		} {
			run(refused...).want(t, 2, "")
		}
	})
}
