package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// A Request asks a lab that is up for something, over its control socket: one
// JSON document there, one back.
type Request struct {
	Do    string      `json:"do"` // one of the words below
	Fault *rack.Fault `json:"fault,omitempty"`
}

// What a Request may ask for.
const (
	DoStatus = "status"
	DoInject = "inject" // Fault
	DoClear  = "clear"  // every fault that is like Fault where that says something; nil: all
	DoDown   = "down"
)

// Status is the answer to every Request.
type Status struct {
	Error string `json:"error,omitempty"`

	Simulated bool           `json:"simulated"` // always true
	Seed      uint64         `json:"seed"`
	Up        float64        `json:"up"` // seconds
	Ports     map[string]int `json:"ports"`
	Leader    string         `json:"leader,omitempty"` // of the replicated service
	Faults    []FaultStatus  `json:"faults"`
	Cleared   int            `json:"cleared,omitempty"`
}

// FaultStatus is one fault of the lab.
type FaultStatus struct {
	rack.Fault
	Begin time.Time  `json:"begin"`
	End   *time.Time `json:"end,omitempty"`
}

const (
	controlLimit = 64 << 10        // bytes of a request
	controlBound = 5 * time.Second // for one to come in and its answer to go out
)

// Control answers requests on l until ctx ends or somebody asks for the end of
// the lab, and then closes l. Nothing but the right to open the socket
// protects it.
func (l *Lab) Control(ctx context.Context, listener net.Listener) error {
	ctx, down := context.WithCancel(ctx)
	defer down()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		conn, err := sshserver.Accept(ctx, listener)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("control socket of the simulated rack: %w", err)
		}
		work.Go(func() {
			defer conn.Close()
			if l.answer(conn) {
				down()
			}
		})
	}
}

// answer serves one request and says whether it was for the end.
func (l *Lab) answer(conn net.Conn) (down bool) {
	_ = conn.SetDeadline(time.Now().Add(controlBound))
	var request Request
	err := json.NewDecoder(io.LimitReader(conn, controlLimit)).Decode(&request)
	var cleared int
	if err == nil {
		cleared, err = l.do(request)
	}
	status := l.Status()
	status.Cleared = cleared
	if err != nil {
		status.Error = err.Error()
	}
	// Who asked and left does not need the answer.
	_ = json.NewEncoder(conn).Encode(status)
	return err == nil && request.Do == DoDown
}

func (l *Lab) do(r Request) (cleared int, err error) {
	switch r.Do {
	case DoStatus, DoDown:
		return 0, nil
	case DoInject:
		if r.Fault == nil {
			return 0, errors.New("the request names no fault")
		}
		return 0, l.Nodes.Rack.Inject(*r.Fault)
	case DoClear:
		like := rack.Fault{}
		if r.Fault != nil {
			like = *r.Fault
		}
		return l.Nodes.Rack.Clear(func(f rack.Fault) bool {
			return (like.Kind == "" || like.Kind == f.Kind) && (like.Node == "" || like.Node == f.Node) && (like.Part == "" || like.Part == f.Part)
		}), nil
	}
	return 0, fmt.Errorf("request %q is not known", r.Do)
}

// Status is what the lab is like now.
func (l *Lab) Status() Status {
	r := l.Nodes.Rack
	s := Status{
		Simulated: true, Seed: r.Seed(), Up: time.Since(r.Start()).Seconds(),
		Ports: l.Ports(), Leader: r.Leader(), Faults: []FaultStatus{},
	}
	for _, f := range r.Faults() {
		each := FaultStatus{Fault: f.Fault, Begin: f.Begin.UTC()}
		if !f.End.IsZero() {
			end := f.End.UTC()
			each.End = &end
		}
		s.Faults = append(s.Faults, each)
	}
	return s
}

// Ask sends one request to the lab whose control socket is at path.
func Ask(ctx context.Context, path string, r Request) (Status, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return Status{}, fmt.Errorf("control socket of the simulated rack: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(controlBound))
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return Status{}, fmt.Errorf("control socket of the simulated rack: %w", err)
	}
	var status Status
	if err := json.NewDecoder(conn).Decode(&status); err != nil {
		return Status{}, fmt.Errorf("control socket of the simulated rack: %w", err)
	}
	if status.Error != "" {
		return status, errors.New(status.Error)
	}
	return status, nil
}
