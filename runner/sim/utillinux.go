package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// The tools of util-linux 2.38 (Debian 12), which writes its tables with
// libsmartcols.

// cell is one cell of a table: a column's name and its value in JSON.
type cell struct{ name, value string }

// smartcolsJSON is a table as libsmartcols writes it in JSON.
func smartcolsJSON(name string, rows [][]cell) string {
	var out strings.Builder
	fmt.Fprintf(&out, "{\n   %s: [\n      ", jsonString(name))
	for i, row := range rows {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("{\n")
		for j, c := range row {
			comma := ","
			if j == len(row)-1 {
				comma = ""
			}
			fmt.Fprintf(&out, "         %s: %s%s\n", jsonString(c.name), c.value, comma)
		}
		out.WriteString("      }")
	}
	out.WriteString("\n   ]\n}\n")
	return out.String()
}

// jsonString is text as a JSON string, with nothing escaped that need not be.
func jsonString(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string has a form in JSON
	return strings.TrimSuffix(out.String(), "\n")
}

// cpuFlags are the flags of a Sapphire Rapids under Linux 5.15, as far as
// programs that choose their instructions by them care.
const cpuFlags = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush dts acpi mmx fxsr sse sse2 ss ht tm pbe syscall nx pdpe1gb rdtscp lm constant_tsc " +
	"pni pclmulqdq ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand lahf_lm abm 3dnowprefetch fsgsbase bmi1 avx2 smep bmi2 erms invpcid " +
	"avx512f avx512dq rdseed adx smap avx512ifma clflushopt clwb avx512cd sha_ni avx512bw avx512vl xsaveopt avx512_bf16 avx512vbmi gfni vaes vpclmulqdq avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8"

// lscpu knows -J.
func lscpu(_ context.Context, c *Call) sshserver.Exit {
	fields := [][2]string{
		{"Architecture:", "x86_64"},
		{"CPU op-mode(s):", "32-bit, 64-bit"},
		{"Address sizes:", "52 bits physical, 57 bits virtual"},
		{"Byte Order:", "Little Endian"},
		{"CPU(s):", strconv.Itoa(rack.CPUs)},
		{"On-line CPU(s) list:", fmt.Sprintf("0-%d", rack.CPUs-1)},
		{"Vendor ID:", "GenuineIntel"},
		{"Model name:", rack.CPUModel},
		{"CPU family:", "6"},
		{"Model:", "143"},
		{"Thread(s) per core:", strconv.Itoa(rack.ThreadsOfCore)},
		{"Core(s) per socket:", strconv.Itoa(rack.CoresOfSocket)},
		{"Socket(s):", strconv.Itoa(rack.Sockets)},
		{"Stepping:", "8"},
		{"CPU max MHz:", "3800.0000"},
		{"CPU min MHz:", "800.0000"},
		{"BogoMIPS:", "4000.00"},
		{"Flags:", cpuFlags},
		{"Virtualization:", "VT-x"},
		{"L1d cache:", "5.3 MiB (112 instances)"},
		{"L1i cache:", "3.5 MiB (112 instances)"},
		{"L2 cache:", "224 MiB (112 instances)"},
		{"L3 cache:", "210 MiB (2 instances)"},
		{"NUMA node(s):", strconv.Itoa(rack.Sockets)},
		{"NUMA node0 CPU(s):", "0-55,112-167"},
		{"NUMA node1 CPU(s):", "56-111,168-223"},
	}
	switch args := c.Argv[1:]; {
	case len(args) == 0:
		for _, f := range fields {
			c.printf("%-24s %s\n", f[0], f[1])
		}
	case slices.Equal(args, []string{"-J"}):
		rows := make([][]cell, len(fields))
		for i, f := range fields {
			rows[i] = []cell{{"field", jsonString(f[0])}, {"data", jsonString(f[1])}}
		}
		c.printf("%s", smartcolsJSON("lscpu", rows))
	default:
		return c.usage("%q", c.Argv)
	}
	return code(0)
}

// lsblk knows -J -b -d -o COLUMNS, which are asked for together.
func lsblk(_ context.Context, c *Call) sshserver.Exit {
	var flags, columns string
	for args := c.Argv[1:]; len(args) > 0; args = args[1:] {
		switch {
		case args[0] == "-J" || args[0] == "-b" || args[0] == "-d":
			flags += args[0][1:]
		case args[0] == "-o" && len(args) > 1:
			columns = args[1]
			args = args[1:]
		default:
			return c.usage("%q", c.Argv)
		}
	}
	if !strings.Contains(flags, "J") || !strings.Contains(flags, "b") || !strings.Contains(flags, "d") || columns == "" {
		return c.usage("lsblk without -J, -b, -d or -o: %q", c.Argv)
	}
	var rows [][]cell
	for _, d := range c.Node.Disks() {
		values := map[string]string{
			"name": jsonString(d.Name), "kname": jsonString(d.Name), "path": jsonString("/dev/" + d.Name), "type": `"disk"`,
			"size": strconv.FormatInt(d.Size, 10), "model": jsonString(d.Model), "serial": jsonString(d.Serial), "tran": `"nvme"`,
		}
		var row []cell
		for column := range strings.SplitSeq(strings.ToLower(columns), ",") {
			value, ok := values[column]
			if !ok {
				return c.usage("column %q", column)
			}
			row = append(row, cell{column, value})
		}
		rows = append(rows, row)
	}
	c.printf("%s", smartcolsJSON("blockdevices", rows))
	return code(0)
}

// mount is one mounted filesystem.
type mount struct {
	target, source, fstype, options string
	pseudo                          bool
}

func (m mount) column(name string) (string, bool) {
	switch name {
	case "target":
		return m.target, true
	case "source":
		return m.source, true
	case "fstype":
		return m.fstype, true
	case "options":
		return m.options, true
	}
	return "", false
}

// mounts are a node's mounted filesystems, in the order of their mounting.
func mounts(n *rack.Node) []mount {
	all := []mount{
		{"/sys", "sysfs", "sysfs", "rw,nosuid,nodev,noexec,relatime", true},
		{"/proc", "proc", "proc", "rw,nosuid,nodev,noexec,relatime", true},
		{"/dev", "udev", "devtmpfs", "rw,nosuid,relatime,size=1056704868k,nr_inodes=264176217,mode=755,inode64", true},
		{"/run", "tmpfs", "tmpfs", "rw,nosuid,nodev,noexec,relatime,size=211348176k,mode=755,inode64", true},
		{"/", rack.RootSource, rack.RootType, "rw,relatime,errors=remount-ro", false},
		{"/dev/shm", "tmpfs", "tmpfs", "rw,nosuid,nodev,inode64", true},
		{"/boot/efi", "/dev/nvme0n1p1", "vfat", "rw,relatime,fmask=0077,dmask=0077,codepage=437,iocharset=iso8859-1,shortname=mixed,errors=remount-ro", false},
	}
	if n.Mounted() {
		all = append(all, mount{rack.MountPoint, rack.MountSource, rack.MountType, "rw,flock,user_xattr,lazystatfs,encrypt", false})
	}
	return all
}

// findmnt knows -J, -l, -n, --real, -o, -t, -S, -M and -T. It has no tree:
// what is asked for must be a list.
func findmnt(_ context.Context, c *Call) sshserver.Exit {
	var asJSON, list, real, bare bool
	columns := []string{"target", "source", "fstype", "options"}
	var fstype, source, mountpoint, of string
	for args := c.Argv[1:]; len(args) > 0; args = args[1:] {
		value := map[string]*string{"-t": &fstype, "-S": &source, "-M": &mountpoint, "-T": &of}[args[0]]
		switch {
		case args[0] == "-J":
			asJSON = true
		case args[0] == "-l":
			list = true
		case args[0] == "-n":
			bare = true
		case args[0] == "--real":
			real = true
		case args[0] == "-o" && len(args) > 1:
			columns = strings.Split(strings.ToLower(args[1]), ",")
			args = args[1:]
		case value != nil && len(args) > 1 && args[1] != "":
			*value = args[1]
			args = args[1:]
		default:
			return c.usage("%q", c.Argv)
		}
	}
	if !list && mountpoint == "" && of == "" && source == "" || strings.HasPrefix(fstype, "no") {
		return c.usage("%q", c.Argv)
	}
	found := slices.DeleteFunc(mounts(c.Node), func(m mount) bool {
		return real && m.pseudo || mountpoint != "" && m.target != path.Clean(mountpoint)
	})
	if of != "" {
		found = c.Files.mountOf(found, of)
	}
	found = slices.DeleteFunc(found, func(m mount) bool {
		return fstype != "" && !slices.Contains(strings.Split(fstype, ","), m.fstype) || source != "" && m.source != source
	})
	if len(found) == 0 {
		return code(1) // and not a word, as the real one
	}
	rows := make([][]cell, len(found))
	for i, m := range found {
		for _, name := range columns {
			value, ok := m.column(name)
			if !ok {
				return c.usage("column %q", name)
			}
			rows[i] = append(rows[i], cell{name, value})
		}
	}
	if asJSON {
		for _, row := range rows {
			for i := range row {
				row[i].value = jsonString(row[i].value)
			}
		}
		c.printf("%s", smartcolsJSON("filesystems", rows))
		return code(0)
	}
	c.printf("%s", smartcolsText(columns, rows, bare))
	return code(0)
}

// mountOf is the filesystem of a path, if the path is there.
func (f *files) mountOf(all []mount, name string) []mount {
	if !f.exists(name) {
		return nil
	}
	name = path.Clean(name)
	var best []mount
	for _, m := range all {
		if within(name, m.target) && (best == nil || len(m.target) >= len(best[0].target)) {
			best = []mount{m}
		}
	}
	return best
}

// smartcolsText is a table in columns, the last of them as long as it is.
func smartcolsText(columns []string, rows [][]cell, bare bool) string {
	if !bare {
		heading := make([]cell, len(columns))
		for i, name := range columns {
			heading[i] = cell{name, strings.ToUpper(name)}
		}
		rows = slices.Insert(slices.Clone(rows), 0, heading)
	}
	var out strings.Builder
	for _, row := range rows {
		for i, c := range row {
			if i == len(row)-1 {
				out.WriteString(c.value + "\n")
				break
			}
			width := 0
			for _, other := range rows {
				width = max(width, len(other[i].value))
			}
			fmt.Fprintf(&out, "%-*s ", width, c.value)
		}
	}
	return out.String()
}
