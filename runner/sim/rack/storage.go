package rack

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// The shared filesystem: where it is mounted, and the figures of a parallel
// filesystem for a rack of this size.
const (
	MountPoint  = "/mnt/scratch"
	MountSource = "10.10.0.1@o2ib:/scratch"
	MountType   = "lustre"

	serverReads, serverWrites = 9e6, 3e6       // requests a second
	serverRead, serverWrite   = 640e9, 320e9   // bytes a second
	clientOps                 = 700e3          // requests a second
	clientBytes               = 24e9           // bytes a second
	readWait, writeWait       = 190e-6, 240e-6 // s of one request with nobody else
	syncWait                  = 620e-6         // s of an fsync

	// A local NVMe disk, as its data sheet has it.
	diskOps                     = 900e3 // requests a second
	diskRead, diskWrite         = 6.8e9, 2.7e9
	diskReadWait, diskWriteWait = 82e-6, 22e-6
	diskSyncWait                = 35e-6
)

// BIOS is the firmware of every node.
const BIOS = "1.6.7"

// Mounted reports whether the node has the shared filesystem.
func (n *Node) Mounted() bool {
	return !n.rack.faulty(KindMissingMount, n.Name, "", time.Now())
}

// Client is one client's load of the shared filesystem, or of its local disk.
type Client struct {
	Local    bool
	Write    bool
	Block    int64 // bytes of a request
	InFlight int   // requests at once
	Sync     bool  // an fsync after each
}

// Transfer is what a client got, on average.
type Transfer struct {
	Rate    float64 // requests a second
	Latency float64 // s of a request
	Sync    float64 // s of the fsync after it, or 0
}

type storage struct {
	rack *Rack

	mu      sync.Mutex
	streams map[*Stream]bool
}

// Stream is a client's load under way.
type Stream struct {
	node    *Node
	client  Client
	storage *storage
	beside  map[*Node]bool // every client that loaded the server meanwhile
}

// Storage begins a load of the shared filesystem, or of the local disk.
func (n *Node) Storage(c Client) *Stream {
	st := &n.rack.storage
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.streams == nil {
		st.streams = make(map[*Stream]bool)
	}
	s := &Stream{node: n, client: c, storage: st, beside: map[*Node]bool{n: true}}
	for other := range st.streams {
		if c.Local || other.client.Local {
			continue // a disk of its own
		}
		s.beside[other.node] = true
		other.beside[n] = true
	}
	st.streams[s] = true
	return s
}

// End ends the load and says what the client got: its requests in flight over
// the time that one takes (Little's law), within what client and server can
// do. The server divides itself among the clients that it had meanwhile.
func (s *Stream) End() Transfer {
	s.storage.mu.Lock()
	delete(s.storage.streams, s)
	clients := float64(len(slices.Collect(maps.Keys(s.beside))))
	s.storage.mu.Unlock()
	r, c := s.storage.rack, s.client
	wait, ops, bytes := readWait, serverReads, serverRead
	if c.Write {
		wait, ops, bytes = writeWait, serverWrites, serverWrite
	}
	limit := min(clientOps, clientBytes/float64(c.Block), ops/clients, bytes/clients/float64(c.Block))
	sync := 0.0
	if c.Sync {
		sync = syncWait
	}
	if c.Local {
		wait, limit = diskReadWait, min(diskOps, diskRead/float64(c.Block))
		if c.Write {
			wait, limit = diskWriteWait, min(diskOps, diskWrite/float64(c.Block))
		}
		sync = min(sync, diskSyncWait)
	}
	if !c.Local && r.faulty(KindSlowStorage, s.node.Name, "", time.Now()) {
		wait, sync, limit = 4*wait, 4*sync, limit/4
	}
	noise := 1 + 0.02*r.noise("storage", s.node.Name, c.Block, c.InFlight, clients)
	rate := min(float64(c.InFlight)/(wait+sync), limit) * noise
	each := float64(c.InFlight) / rate
	if c.Sync {
		sync *= each / (wait + sync)
	}
	return Transfer{Rate: rate, Latency: each - sync, Sync: sync}
}
