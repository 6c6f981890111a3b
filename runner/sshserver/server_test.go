package sshserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/runner/sshserver"
)

// parse takes "run WORD…" and nothing else.
func parse(line string) (sshserver.Command, error) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "run" {
		return sshserver.Command{}, errors.New("not a command of this test")
	}
	return sshserver.Command{Argv: words[1:], Stdin: 3, Deadline: 300 * time.Millisecond, Grace: 200 * time.Millisecond, LinePrefix: "mark "}, nil
}

func dial(t *testing.T, c sshserver.Config) *ssh.Client {
	t.Helper()
	user, err := sshserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c.Authorized = []ssh.PublicKey{user.PublicKey()}
	c.Parse = parse
	s, err := sshserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := ssh.Dial("tcp", s.Addr().String(), &ssh.ClientConfig{
		User: "tester", Auth: []ssh.AuthMethod{ssh.PublicKeys(user)}, HostKeyCallback: ssh.FixedHostKey(s.HostKey()), Timeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCommand(t *testing.T) {
	client := dial(t, sshserver.Config{Handler: func(ctx context.Context, c sshserver.Command, stdin io.Reader, stdout, stderr io.Writer) sshserver.Exit {
		switch c.Argv[0] {
		case "echo":
			data, err := io.ReadAll(stdin)
			if err != nil {
				return sshserver.Exit{Code: 9}
			}
			_, _ = stdout.Write(data)
			_, _ = io.WriteString(stderr, "done")
			return sshserver.Exit{Code: 5}
		case "die":
			return sshserver.Exit{Signal: "SEGV"}
		case "missing":
			return sshserver.Exit{Refused: "tool-missing /bin"}
		case "hang":
			<-ctx.Done()
			return sshserver.Exit{}
		case "stubborn":
			// Past the grace the server counts it as killed.
			<-ctx.Done()
			timer := time.NewTimer(time.Second)
			defer timer.Stop()
			<-timer.C
			_, _ = io.WriteString(stdout, "too late")
		}
		return sshserver.Exit{}
	}})
	for _, c := range []struct {
		line, out, err string
		status         int
		signal         string
	}{
		{"run echo", "mark start\nabc", "mark start\ndone", 5, ""},
		{"run die", "mark start\n", "mark start\n", 0, "SEGV"},
		{"run missing", "", "mark tool-missing /bin\n", 97, ""},
		{"run hang", "mark start\n", "mark start\n", 0, "TERM"},
		{"run stubborn", "mark start\n", "mark start\n", 0, "KILL"},
		{"id; run echo", "", "this node has no shell: not a command of this test\n", 127, ""},
	} {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		session.Stdout, session.Stderr = &out, &errs
		stdin, err := session.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Start(c.line); err != nil {
			t.Fatal(err)
		}
		// The session's input stays open: its end would be a stop.
		if _, err := io.WriteString(stdin, "abc"); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var exit *ssh.ExitError
		if err := session.Wait(); !errors.As(err, &exit) {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if exit.Signal() != c.signal || c.signal == "" && exit.ExitStatus() != c.status {
			t.Errorf("%s: status %d signal %q, want %d %q", c.line, exit.ExitStatus(), exit.Signal(), c.status, c.signal)
		}
		if out.String() != c.out || errs.String() != c.err {
			t.Errorf("%s: %q and %q, want %q and %q", c.line, out.String(), errs.String(), c.out, c.err)
		}
	}
}

// scarce is a listener of a process that at first has no file descriptor left.
type scarce struct {
	net.Listener
	refusals int
}

func (l *scarce) Accept() (net.Conn, error) {
	if l.refusals > 0 {
		l.refusals--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptOutlivesAShortage(t *testing.T) {
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := sshserver.Accept(t.Context(), &scarce{l, 3})
	if err != nil {
		t.Fatalf("after a shortage: %v", err)
	}
	conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sshserver.Accept(ctx, &scarce{l, 1 << 30}); !errors.Is(err, context.Canceled) {
		t.Errorf("in a shortage without an end: %v", err)
	}
	l.Close()
	if _, err := sshserver.Accept(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed listener: %v", err)
	}
}

func TestMaxSessions(t *testing.T) {
	client := dial(t, sshserver.Config{MaxSessions: 2, Handler: func(ctx context.Context, _ sshserver.Command, _ io.Reader, _, _ io.Writer) sshserver.Exit {
		<-ctx.Done()
		return sshserver.Exit{}
	}})
	for i := range 3 {
		_, err := client.NewSession()
		var refused *ssh.OpenChannelError
		if i < 2 && err != nil || i == 2 && (!errors.As(err, &refused) || refused.Message != "open failed") {
			t.Errorf("session %d: %v", i+1, err)
		}
	}
}
