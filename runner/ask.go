package runner

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const (
	askDeadline = 20 * time.Second
	askLimit    = 4096            // bytes of each stream
	askSlack    = 5 * time.Second // for the executor's own deadline to act first
)

// ask runs a short command of the runner's own on node. Its output goes
// nowhere but to the caller.
func (r *run) ask(ctx context.Context, node, step string, deadline time.Duration, argv ...string) (stdout string, exit evidence.Exit) {
	bound, cancel := context.WithTimeout(ctx, deadline+askSlack)
	defer cancel()
	out, errs := clippedBuffer{limit: askLimit}, clippedBuffer{limit: askLimit}
	exit, err := r.o.Executor.Exec(bound, evidence.Task{
		Mark:        r.o.Store.Run() + "/" + step,
		Node:        node,
		Argv:        argv,
		Env:         environment(nil),
		Deadline:    deadline,
		OutputLimit: askLimit,
	}, &out, &errs)
	if err != nil && exit.Class == "" {
		exit.Class, exit.Detail = evidence.ClassOutputCut, err.Error()
	}
	if !exit.OK() && bound.Err() != nil && ctx.Err() == nil {
		exit.Class = evidence.ClassTimeout
	}
	if exit.Detail == "" {
		exit.Detail = firstLine(errs.String())
	}
	return out.String(), exit
}

// clippedBuffer keeps the first limit bytes.
type clippedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *clippedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func firstLine(text string) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace([]byte(text)), []byte("\n"))
	return string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
}

// exitText says in a few words how a command ended.
func exitText(e evidence.Exit) string {
	text := string(e.Class)
	if e.Code != nil && (e.Class == evidence.ClassOK || e.Class == evidence.ClassExit) {
		text = "exit status " + strconv.Itoa(*e.Code)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// away reports whether c says that a node cannot be reached any more.
func away(c evidence.Class) bool {
	switch c {
	case evidence.ClassLost, evidence.ClassAuth, evidence.ClassNotSSH, evidence.ClassHostKeyMismatch, evidence.ClassHostKeyUnknown:
		return true
	}
	return c.Retryable()
}

// ended reports whether err is that of a context that ended.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
