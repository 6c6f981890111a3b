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
// generates, and those that were written since. A directory is there when it
// was made, or when a file is below it.
type files struct {
	node *rack.Node

	mu      sync.Mutex
	written map[string][]byte
	dirs    map[string]bool
	locked  map[string]bool
}

func newFiles(n *rack.Node) *files {
	return &files{
		node: n, written: make(map[string][]byte), locked: make(map[string]bool),
		dirs: map[string]bool{"/": true, "/tmp": true, "/var/tmp": true, "/dev/shm": true, "/root": true, rack.MountPoint: true},
	}
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
)

// generated are the files that the model writes, by path.
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
		return fmt.Sprintf("%.2f %.2f\n", up, up*hostCPUs*0.98)
	},
	"/proc/driver/nvidia/version": func(n *rack.Node) string {
		return "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + n.DriverVersion() + "  Fri May 31 09:35:42 UTC 2024\n"
	},
})

// hostCPUs is the number of logical CPUs of a node: two sockets of 56 cores
// with two threads each, as a DGX H100 has them.
const hostCPUs = 224

func (f *files) read(name string) ([]byte, error) {
	name = path.Clean(name)
	if make, ok := generated[name]; ok {
		return []byte(make(f.node)), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if data, ok := f.written[name]; ok {
		return slices.Clone(data), nil
	}
	if f.isDir(name) {
		return nil, errIsDir
	}
	return nil, errNoEntry
}

// write makes a file, or adds to it.
func (f *files) write(name string, data []byte, add bool) error {
	name = path.Clean(name)
	if _, ok := generated[name]; ok {
		return errForbidden
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.isDir(name):
		return errIsDir
	case !f.isDir(path.Dir(name)):
		return errNoEntry
	}
	if add {
		data = append(slices.Clone(f.written[name]), data...)
	}
	f.written[name] = slices.Clone(data)
	return nil
}

func (f *files) isDir(name string) bool {
	if f.dirs[name] {
		return true
	}
	for file := range generated {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

// mkdir makes one directory, or with parents all that lack.
func (f *files) mkdir(name string, parents bool) error {
	name = path.Clean(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written[name] != nil {
		return errExists
	}
	if f.isDir(name) {
		if parents {
			return nil
		}
		return errExists
	}
	if !parents && !f.isDir(path.Dir(name)) {
		return errNoEntry
	}
	for dir := name; !f.isDir(dir); dir = path.Dir(dir) {
		f.dirs[dir] = true
	}
	return nil
}

// below lists the files and the made directories at or below name, in order.
func (f *files) below(name string) (files, dirs []string) {
	name = path.Clean(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	within := func(p string) bool { return p == name || strings.HasPrefix(p, strings.TrimSuffix(name, "/")+"/") }
	for file := range f.written {
		if within(file) {
			files = append(files, file)
		}
	}
	for dir := range f.dirs {
		if within(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(files)
	slices.Sort(dirs)
	return files, dirs
}

// remove removes one file or one empty directory.
func (f *files) remove(name string) error {
	name = path.Clean(name)
	files, dirs := f.below(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(files) == 1 && files[0] == name:
		delete(f.written, name)
	case len(files) > 0 || len(dirs) > 1:
		return errNotEmpty
	case len(dirs) == 1:
		delete(f.dirs, name)
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
