package sim_test

import (
	"strings"
	"testing"
	"time"
)

const etcdWarning = `{"level":"warn","ts":"2000-01-01T00:00:05.000000Z","logger":"etcd-client","caller":"v3@v3.5.16/retry_interceptor.go:63","msg":"retrying of unary invoker failed",` +
	`"target":"etcd-endpoints://0xc000150000/127.0.0.1:2379","attempt":0,"error":"rpc error: code = DeadlineExceeded desc = `

func TestEtcdctl(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "OK\n", "", "gpu002", "etcdctl", "put", "k/2", "two")
		b.says(0, "OK\n", "", "gpu001", "etcdctl", "--endpoints=gpu003:2379", "put", "k/1", "--", "-one")
		b.says(0, "-one\ntwo\n", "", "gpu003", "etcdctl", "get", "--prefix", "k/", "--print-value-only")
		b.says(0, "k/2\ntwo\n", "", "gpu003", "etcdctl", "get", "k/2")
		b.says(0, "", "", "gpu003", "etcdctl", "get", "k/")
		b.says(0, "127.0.0.1:2379 is healthy: successfully committed proposal: took = 3.8ms\n", "", "gpu001", "etcdctl", "endpoint", "health")
		id := b.Nodes()[1].MachineID[:16]
		b.says(0, "gpu002:2379, "+id+", 3.5.16, 20 kB, false, false, 2, 10, 10, \n", "", "gpu001", "etcdctl", "--endpoints=gpu002:2379", "endpoint", "status")
		for _, argv := range [][]string{{"etcdctl"}, {"etcdctl", "put", "k"}, {"etcdctl", "get", "-w", "json", "k"}, {"etcdctl", "--command-timeout=x", "get", "k"}, {"etcdctl", "del", "k"}} {
			b.refuses("gpu001", argv...)
		}
	})
}

func TestWritesWaitForALeader(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "", "", "gpu001", "pkill", "-KILL", "-x", "--", "etcd")
		start := time.Now()
		b.says(1, "", strings.Replace(etcdWarning, "05.000000", "00.900000", 1)+"context deadline exceeded\"}\nError: context deadline exceeded\n",
			"gpu002", "etcdctl", "--command-timeout=900ms", "put", "k", "v")
		b.says(0, "OK\n", "", "gpu002", "etcdctl", "put", "k", "v")
		if took := time.Since(start); took < 1200*time.Millisecond || took > 1220*time.Millisecond {
			t.Errorf("a write was taken after %s, want an election", took)
		}
		if leader := b.Leader(); leader != "gpu002" {
			t.Errorf("%q leads", leader)
		}
		// Endpoints of which one is left, and of which none is.
		b.says(0, "OK\n", "", "gpu001", "etcdctl", "--endpoints=http://gpu001:2379,http://gpu002:2379", "put", "k", "v")
		got := b.run("gpu001", "etcdctl", "put", "k", "v")
		if *got.Code != 1 || got.stdout != "" || !strings.Contains(got.stderr, `dial tcp 127.0.0.1:2379: connect: connection refused\""}`+"\nError: context deadline exceeded\n") {
			t.Errorf("code %d, stderr %q", *got.Code, got.stderr)
		}
	})
}

func TestWritesFailWithoutAMajority(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "", "", "gpu001", "pkill", "-KILL", "-x", "--", "etcd")
		b.says(0, "", "", "gpu002", "systemctl", "stop", "etcd")
		b.says(1, "", etcdWarning+"context deadline exceeded\"}\nError: context deadline exceeded\n", "gpu003", "etcdctl", "put", "k", "v")
		b.says(1, "", "127.0.0.1:2379 is unhealthy: failed to commit proposal: context deadline exceeded\nError: unhealthy cluster\n", "gpu003", "etcdctl", "endpoint", "health")
		b.says(0, "", "", "gpu002", "systemctl", "start", "etcd")
		b.says(0, "OK\n", "", "gpu003", "etcdctl", "put", "k", "v")
	})
}

func TestStoppedLeaderHandsOver(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "", "", "gpu001", "service", "etcd", "stop")
		start := time.Now()
		b.says(0, "OK\n", "", "gpu002", "etcdctl", "put", "k", "v")
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("a write took %s after the leader had handed over", took)
		}
	})
}

func TestProcessesOfTheService(t *testing.T) {
	onHosts(t, func(b bench) {
		b.says(0, "1873\n", "", "gpu001", "cat", "/run/etcd.pid")
		b.says(0, "1873\n", "", "gpu001", "pgrep", "-x", "etcd")
		b.says(0, "1\n", "", "gpu001", "pgrep", "-c", "-x", "etcd")
		b.says(0, "1873 etcd\n", "", "gpu001", "pgrep", "-l", "tcd")
		b.says(0, "1873 /usr/bin/etcd --name gpu001\n", "", "gpu001", "pgrep", "-a", "etcd")
		b.says(1, "", "", "gpu001", "pgrep", "-x", "tcd")
		b.says(0, "active\n", "", "gpu001", "systemctl", "is-active", "etcd")
		b.says(0, "", "", "gpu001", "pkill", "-KILL", "-F", "/run/etcd.pid")
		b.says(3, "failed\n", "", "gpu001", "systemctl", "is-active", "etcd.service")
		b.says(1, "0\n", "", "gpu001", "pgrep", "-c", "-x", "etcd")
		// A process that is not there is a fault that was not injected.
		b.says(1, "", "", "gpu001", "pkill", "-KILL", "-x", "--", "etcd")
		b.says(1, "", "", "gpu001", "pkill", "-KILL", "-F", "/run/etcd.pid")
		b.says(1, "", "pkill: pidfile not valid\nTry `pkill --help' for more information.\n", "gpu001", "pkill", "-KILL", "-F", "/run/nobody.pid")
		b.says(0, "", "", "gpu001", "systemctl", "start", "etcd")
		b.says(0, "2990\n", "", "gpu001", "pgrep", "-x", "etcd")
		b.says(0, "", "", "gpu001", "systemctl", "restart", "etcd")
		b.says(0, "4107\n", "", "gpu001", "cat", "/run/etcd.pid")
		b.says(0, "", "", "gpu001", "pkill", "etcd")
		b.says(3, "inactive\n", "", "gpu001", "systemctl", "is-active", "etcd")
		b.says(5, "", "Failed to start nginx.service: Unit nginx.service not found.\n", "gpu001", "systemctl", "start", "nginx")
		b.says(5, "", "Failed to stop nginx.service: Unit nginx.service not loaded.\n", "gpu001", "systemctl", "stop", "nginx")
		b.refuses("gpu001", "pkill", "-KILL", "-x", "--", "sshd")
		b.refuses("gpu001", "pkill", "-KILL", "-x", "--", "(")
		b.refuses("gpu001", "pkill", "-f", "etcd")
		b.refuses("gpu001", "pgrep")
		b.refuses("gpu001", "systemctl", "status", "etcd")
	})
}
