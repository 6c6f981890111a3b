// Package rack raises what examples/sshd-32 runs against: sshd processes on
// loopback addresses, and one redis server that stands for the service whose
// failover is measured. All of it shares this machine.
package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rackproof/rackproof/runner/ssh/sshfleet"
)

// Options say what to raise.
type Options struct {
	// Dir is an absolute folder for keys, configuration and data. It is made,
	// and must lie on a filesystem that fio can use with O_DIRECT.
	Dir   string
	Nodes int // 32 if zero
	// Node gives single nodes a fault of their own; nil gives none.
	Node func(name string) sshfleet.NodeOptions
}

// Rack is raised; Close ends it.
type Rack struct {
	Fleet *sshfleet.Fleet
	Dir   string

	filesystem string
	address    string // of the service
	port       int
}

// Up raises the sshd processes and the service.
func Up(ctx context.Context, o Options) (*Rack, error) {
	if o.Nodes == 0 {
		o.Nodes = 32
	}
	for _, tool := range []struct{ name, debian string }{
		{"fio", "fio"}, {"stress-ng", "stress-ng"}, {"redis-server", "redis-server"}, {"redis-cli", "redis-tools"}, {"findmnt", "util-linux"}, {"pkill", "procps"},
	} {
		if _, err := exec.LookPath(tool.name); err != nil {
			return nil, fmt.Errorf("%s is not installed: apt-get install %s", tool.name, tool.debian)
		}
	}
	r := &Rack{Dir: o.Dir}
	for _, dir := range []string{r.Storage(), r.serviceDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	var err error
	if r.filesystem, err = filesystem(ctx, r.Storage()); err != nil {
		return nil, err
	}
	r.Fleet, err = sshfleet.Up(ctx, sshfleet.Options{Dir: filepath.Join(o.Dir, "fleet"), N: o.Nodes, Prefix: "n", Node: o.Node})
	if err != nil {
		return nil, err
	}
	if err := r.startService(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Storage is the folder that stands for the shared filesystem.
func (r *Rack) Storage() string { return StorageBelow(r.Dir) }

// StorageBelow is where Storage is for a rack in dir, for those who mount
// something there before the rack is up.
func StorageBelow(dir string) string { return filepath.Join(dir, "storage") }

func (r *Rack) serviceDir() string { return filepath.Join(r.Dir, "service") }

// PIDFile is the service's.
func (r *Rack) PIDFile() string { return filepath.Join(r.serviceDir(), "redis.pid") }

// Vars are the runbook's variables for this rack.
func (r *Rack) Vars() map[string]string {
	return map[string]string{
		"ssh_config":   r.Fleet.SSHConfig,
		"known_hosts":  r.Fleet.KnownHosts,
		"storage":      r.Storage(),
		"filesystem":   r.filesystem,
		"service_host": r.address,
		"service_port": strconv.Itoa(r.port),
		"service_dir":  r.serviceDir(),
	}
}

// Flags are Vars as flags of the command line, in a fixed order.
func (r *Rack) Flags() []string {
	vars := r.Vars()
	var flags []string
	for _, name := range []string{"ssh_config", "known_hosts", "storage", "filesystem", "service_host", "service_port", "service_dir"} {
		flags = append(flags, "--var", name+"="+vars[name])
	}
	return flags
}

// filesystem is the type of the filesystem that holds dir.
func filesystem(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "findmnt", "-J", "-T", dir, "-o", "FSTYPE").Output()
	if err != nil {
		return "", fmt.Errorf("findmnt %s: %w", dir, err)
	}
	var table struct {
		Filesystems []struct {
			FSType string `json:"fstype"`
		} `json:"filesystems"`
	}
	if err := json.Unmarshal(out, &table); err != nil {
		return "", fmt.Errorf("findmnt %s: %w", dir, err)
	}
	if len(table.Filesystems) != 1 {
		return "", fmt.Errorf("findmnt %s: %d filesystems", dir, len(table.Filesystems))
	}
	return table.Filesystems[0].FSType, nil
}

// startService starts redis on the address of the fleet's last node. Every
// write is on disk before it is acknowledged, so that a kill may lose none.
func (r *Rack) startService(ctx context.Context) error {
	names := r.Fleet.Names()
	r.address = r.Fleet.Node(names[len(names)-1]).Address
	var err error
	if r.port, err = freePort(ctx, r.address); err != nil {
		return err
	}
	config := filepath.Join(r.serviceDir(), "redis.conf")
	text := strings.Join([]string{
		"bind " + r.address,
		"port " + strconv.Itoa(r.port),
		"daemonize yes",
		"pidfile " + r.PIDFile(),
		"logfile " + filepath.Join(r.serviceDir(), "redis.log"),
		"dir " + r.serviceDir(),
		"appendonly yes",
		"appendfsync always",
		`save ""`,
		"",
	}, "\n")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "redis-server", config).CombinedOutput(); err != nil {
		return fmt.Errorf("redis-server %s: %w\n%s", config, err, out)
	}
	for range 100 {
		if r.servicePID() > 0 && r.ServiceAnswers(ctx) {
			return r.firstRecord(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("redis-server %s: no answer on %s:%d after 5 s", config, r.address, r.port)
}

// firstRecord gives the service something to keep, as one in use has: the
// failover test has to tell it from its own records.
func (r *Rack) firstRecord(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "redis-cli", "-e", "-h", r.address, "-p", strconv.Itoa(r.port), "RPUSH", "records", "kept-since-before").CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-cli RPUSH: %w\n%s", err, out)
	}
	return nil
}

// ServiceAnswers reports whether the service is up.
func (r *Rack) ServiceAnswers(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, "redis-cli", "-h", r.address, "-p", strconv.Itoa(r.port), "PING").Output()
	return err == nil && strings.TrimSpace(string(out)) == "PONG"
}

func (r *Rack) servicePID() int {
	text, err := os.ReadFile(r.PIDFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

func freePort(ctx context.Context, address string) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Close ends every process that Up started, and the service that a fault may
// have started anew.
func (r *Rack) Close() error {
	var err error
	if pid := r.servicePID(); pid > 0 {
		if kill := syscall.Kill(pid, syscall.SIGTERM); kill != nil && !errors.Is(kill, syscall.ESRCH) {
			err = fmt.Errorf("redis-server %d: %w", pid, kill)
		}
	}
	return errors.Join(err, r.Fleet.Close())
}
