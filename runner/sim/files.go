package sim

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

// files is what a node's tools read and write: files that the model
// generates, its local disk, and the shared filesystem where that is mounted.
type files struct {
	node   *rack.Node
	local  *tree
	shared *tree

	mu     sync.Mutex
	locked map[string]bool
}

func newFiles(n *rack.Node, shared *tree) *files {
	return &files{
		node: n, shared: shared, locked: make(map[string]bool),
		local: newTree("/", "/tmp", "/var/tmp", "/dev/shm", "/root", "/run", "/boot/efi", rack.MountPoint),
	}
}

// home is where commands begin.
const home = "/root"

// absolute is the clean, absolute form of a name.
func absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(home, name)
	}
	return path.Clean(name)
}

// tree is the files and directories of one filesystem by absolute path. A
// directory is there when it was made, or when something is below it.
type tree struct {
	mu      sync.Mutex
	written map[string]content
	dirs    map[string]bool
}

// content is what a file holds. One that was laid out has a size alone:
// nobody needs the gigabytes.
type content struct {
	data []byte
	size int64
}

func newTree(dirs ...string) *tree {
	t := &tree{written: make(map[string]content), dirs: make(map[string]bool)}
	for _, dir := range dirs {
		t.dirs[dir] = true
	}
	return t
}

// strerror is what a file operation fails with, as the C library words it.
type strerror string

// Error is the text that tools print.
func (e strerror) Error() string { return string(e) }

const (
	errNoEntry   strerror = "No such file or directory"
	errIsDir     strerror = "Is a directory"
	errExists    strerror = "File exists"
	errNotEmpty  strerror = "Directory not empty"
	errForbidden strerror = "Permission denied"
	errTooLarge  strerror = "File too large"
	errBusy      strerror = "Device or resource busy"
)

// generated are the files that the model writes, by path. One without content
// is not there.
var generated = withPortFiles(map[string]func(n *rack.Node) string{
	"/etc/machine-id":                  func(n *rack.Node) string { return n.MachineID + "\n" },
	"/proc/sys/kernel/random/boot_id":  func(n *rack.Node) string { return n.BootID + "\n" },
	"/sys/class/dmi/id/product_serial": func(n *rack.Node) string { return n.Serial + "\n" },
	"/sys/class/dmi/id/sys_vendor":     func(*rack.Node) string { return "rackproof\n" },
	"/sys/class/dmi/id/product_name":   func(*rack.Node) string { return "simulated node\n" },
	"/sys/class/dmi/id/bios_version":   func(*rack.Node) string { return rack.BIOS + "\n" },
	"/proc/sys/kernel/hostname":        func(n *rack.Node) string { return n.Name + "\n" },
	"/proc/sys/kernel/osrelease":       func(*rack.Node) string { return rack.KernelRelease + "\n" },
	"/proc/version": func(*rack.Node) string {
		return "Linux version " + rack.KernelRelease + " (simulated) #123-Ubuntu SMP\n"
	},
	"/etc/os-release": func(*rack.Node) string {
		return "PRETTY_NAME=\"Ubuntu 22.04.4 LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"22.04\"\nID=ubuntu\n"
	},
	"/proc/meminfo": func(*rack.Node) string {
		return "MemTotal:       2113481728 kB\nMemFree:        2089330176 kB\nMemAvailable:   2094571520 kB\n"
	},
	"/proc/uptime": func(n *rack.Node) string {
		up := time.Since(n.Boot).Seconds()
		_, _, idle := n.CPUTime()
		return fmt.Sprintf("%.2f %.2f\n", up, idle)
	},
	"/proc/stat":  procStat,
	memberPIDFile: memberPID,
	"/proc/driver/nvidia/version": func(n *rack.Node) string {
		return "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + n.DriverVersion() + "  Fri May 31 09:35:42 UTC 2024\n"
	},
})

// tick is the unit of /proc/stat, a hundredth of a second (USER_HZ).
const tick = 100

// procStat is /proc/stat (proc(5)): the time that all CPUs spent, and each.
func procStat(n *rack.Node) string {
	loads, system, idle := n.CPUTime()
	var out strings.Builder
	line := func(name string, share float64) {
		ticks := func(seconds float64) int64 { return int64(seconds * share * tick) }
		fmt.Fprintf(&out, "%s %d 0 %d %d 0 0 %d 0 0 0\n", name, ticks(loads), ticks(0.9*system), ticks(idle), ticks(0.1*system))
	}
	line("cpu ", 1)
	for i := range rack.CPUs {
		line(fmt.Sprintf("cpu%d", i), 1.0/rack.CPUs)
	}
	fmt.Fprintf(&out, "ctxt %d\nbtime %d\nprocesses %d\nprocs_running %d\nprocs_blocked 0\n",
		int64(system*4000), n.Boot.Unix(), 41000+int64(system), 1+n.CPULoad())
	return out.String()
}

// memberPIDFile holds the process id of the node's member of the service.
const memberPIDFile = "/run/" + rack.MemberName + ".pid"

func memberPID(n *rack.Node) string {
	if pid := n.MemberPID(); pid > 0 {
		return fmt.Sprintf("%d\n", pid)
	}
	return ""
}

// isShared reports whether a path lies on the shared filesystem, and on the
// local disk otherwise: so does what is below a mount point where nothing is
// mounted.
func (f *files) isShared(name string) bool { return within(name, rack.MountPoint) && f.node.Mounted() }

// within reports whether name is dir or below it. Both are clean.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// on is the filesystem that a clean path lies on.
func (f *files) on(name string) *tree {
	if f.isShared(name) {
		return f.shared
	}
	return f.local
}

func (f *files) generated(name string) (string, bool) {
	make, ok := generated[name]
	if !ok {
		return "", false
	}
	text := make(f.node)
	return text, text != ""
}

func (f *files) read(name string) ([]byte, error) {
	name = absolute(name)
	if text, ok := f.generated(name); ok {
		return []byte(text), nil
	}
	data, err := f.on(name).read(name)
	if err == errNoEntry && f.isDir(name) {
		err = errIsDir
	}
	return data, err
}

func (t *tree) read(name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch file, ok := t.written[name]; {
	case !ok && t.isDir(name):
		return nil, errIsDir
	case !ok:
		return nil, errNoEntry
	case int64(len(file.data)) < file.size:
		return nil, errTooLarge
	default:
		return slices.Clone(file.data), nil
	}
}

// write makes a file, or adds to it.
func (f *files) write(name string, data []byte, add bool) error {
	name = absolute(name)
	if err := f.writable(name); err != nil {
		return err
	}
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDir(name) {
		return errIsDir
	}
	file := t.written[name]
	if add && int64(len(file.data)) < file.size {
		return errTooLarge
	}
	if add {
		data = append(slices.Clone(file.data), data...)
	}
	t.written[name] = content{slices.Clone(data), int64(len(data))}
	return nil
}

// layOut makes a file of at least size bytes, or lengthens it, and says by how
// many bytes.
func (f *files) layOut(name string, size int64) (int64, error) {
	name = absolute(name)
	if err := f.writable(name); err != nil {
		return 0, err
	}
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDir(name) {
		return 0, errIsDir
	}
	file := t.written[name]
	added := max(0, size-file.size)
	t.written[name] = content{file.data, file.size + added}
	return added, nil
}

// writable says whether a file may be made at a clean path, apart from what is
// there.
func (f *files) writable(name string) error {
	if _, ok := generated[name]; ok {
		return errForbidden
	}
	if !f.isDir(path.Dir(name)) {
		return errNoEntry
	}
	return nil
}

// exists reports whether a file or a directory is at a path.
func (f *files) exists(name string) bool {
	name = absolute(name)
	if _, ok := f.generated(name); ok || f.isDir(name) {
		return true
	}
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.written[name]
	return ok
}

// size is how long a file is; a directory has none.
func (f *files) size(name string) int64 {
	name = absolute(name)
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written[name].size
}

func (f *files) isDir(name string) bool {
	name = absolute(name)
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDir(name) {
		return true
	}
	for file := range generated {
		if file != name && within(file, name) {
			return true
		}
	}
	return false
}

// isDir is for a locked tree.
func (t *tree) isDir(name string) bool {
	if t.dirs[name] {
		return true
	}
	for dir := range t.dirs {
		if within(dir, name) {
			return true
		}
	}
	for file := range t.written {
		if file != name && within(file, name) {
			return true
		}
	}
	return false
}

// mkdir makes one directory, or with parents all that lack.
func (f *files) mkdir(name string, parents bool) error {
	name = absolute(name)
	switch {
	case f.isDir(name) && parents:
		return nil
	case f.exists(name):
		return errExists
	case !parents && !f.isDir(path.Dir(name)):
		return errNoEntry
	}
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []string
	for dir := name; !t.isDir(dir); dir = path.Dir(dir) {
		missing = append(missing, dir)
	}
	for _, dir := range missing {
		t.dirs[dir] = true
	}
	return nil
}

// below lists the files and the made directories at or below name, in order.
// It crosses no mount point.
func (f *files) below(name string) (files, dirs []string) {
	name = absolute(name)
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	for file := range t.written {
		if within(file, name) {
			files = append(files, file)
		}
	}
	for dir := range t.dirs {
		if within(dir, name) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(files)
	slices.Sort(dirs)
	return files, dirs
}

// remove removes one file or one empty directory.
func (f *files) remove(name string) error {
	name = absolute(name)
	files, dirs := f.below(name)
	t := f.on(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case name == rack.MountPoint:
		return errBusy
	case len(files) == 1 && files[0] == name:
		delete(t.written, name)
	case len(files) > 0 || len(dirs) > 1:
		return errNotEmpty
	case len(dirs) == 1:
		delete(t.dirs, name)
	default:
		return errNoEntry
	}
	return nil
}

// lock takes the lock of a file, and says whether it was free.
func (f *files) lock(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked[name] {
		return false
	}
	f.locked[name] = true
	return true
}

func (f *files) unlock(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.locked, name)
}
