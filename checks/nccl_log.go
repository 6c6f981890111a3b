package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// NCCL's own log says how the ranks talked to each other. Every process writes
// one (NCCL_DEBUG_FILE); what is fetched of a node's are the different lines
// that tell, shortened to what differs between nodes and not between channels.
// The forms are those of NCCL 2.4 to 2.28 (src/init.cc, src/enqueue.cc,
// src/transport).

// ncclDigestLimit bounds the lines of a digest: a sound one has a few dozen.
const ncclDigestLimit = 1000

// ncclDigest is the awk program that makes the digest of all logs. Its last
// line proves that it came to its end.
var ncclDigest = `/ NCCL INFO / {
  sub(/^.* NCCL INFO /, "")
  if ($0 ~ /^(Channel|Ring) .* via /) sub(/^.* via /, "via ")
  else if ($0 ~ /Bytes -> Algo /) sub(/ proto .*$/, "")
  else if ($0 ~ /^NET\/IB : Using/) sub(/ *;.*$/, "")
  else if ($0 ~ /^NCCL version /) sub(/\+.*$/, "")
  else if ($0 ~ /^[0-9]+ coll channels/) sub(/,.*$/, "")
  else next
  if (!($0 in seen) && n < ` + strconv.Itoa(ncclDigestLimit) + `) { seen[$0] = 1; n++; print }
}
END { print "end of " n+0 " lines" }`

var (
	ncclDigestEnd = regexp.MustCompile(`^end of (\d+) lines$`)
	ncclTuned     = regexp.MustCompile(`^(?:AllReduce: )?(\d+) Bytes -> Algo (\S+)$`)
	ncclHCA       = regexp.MustCompile(`\[\d+\](\S+?):\d+/(?:IB|RoCE)`)
	ncclChannels  = regexp.MustCompile(`^(\d+) coll channels$`)
)

// ncclAlgorithms are the names of NCCL_ALGO by number (src/include/nccl_tuner.h)
// and as newer releases print them.
var (
	ncclAlgorithms     = []string{"Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"}
	ncclAlgorithmWords = map[string]string{
		"TREE": "Tree", "RING": "Ring", "COLLNET_DIRECT": "CollNetDirect", "COLLNET_CHAIN": "CollNetChain",
		"NVLS": "NVLS", "NVLS_TREE": "NVLSTree", "PAT": "PAT",
	}
)

// ncclLog is what the logs of a node say.
type ncclLog struct {
	release    string
	transports []string            // such as P2P/CUMEM and NET/IB, sorted
	gdr, noGDR bool                // channels of the network with and without GPUDirect RDMA
	hcas       []string            // one text a list; processes of a node should agree
	channels   []string            // numbers of channels
	algorithms map[uint64][]string // by size in bytes
	empty      bool
}

// noted is the list with the text in it, once, unless it is empty.
func noted(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// readNcclLog reads a digest.
func readNcclLog(digest []byte) (ncclLog, error) {
	log := ncclLog{algorithms: make(map[uint64][]string)}
	text, whole := strings.CutSuffix(string(digest), "\n")
	if text == "" && !whole {
		log.empty = true // there was no log
		return log, nil
	}
	lines := strings.Split(text, "\n")
	end := ncclDigestEnd.FindStringSubmatch(lines[len(lines)-1])
	if !whole || end == nil {
		return log, fmt.Errorf("it does not end with its number of lines")
	}
	lines = lines[:len(lines)-1]
	if end[1] != strconv.Itoa(len(lines)) {
		return log, fmt.Errorf("it has %d lines and says %s", len(lines), end[1])
	}
	if len(lines) >= ncclDigestLimit {
		return log, fmt.Errorf("it has %d different lines or more, and is cut there", ncclDigestLimit)
	}
	for _, line := range lines {
		log.line(line)
	}
	slices.Sort(log.transports)
	slices.Sort(log.hcas)
	slices.Sort(log.channels)
	log.empty = len(lines) == 0
	return log, nil
}

func (log *ncclLog) line(line string) {
	if via, ok := strings.CutPrefix(line, "via "); ok {
		parts := strings.Split(via, "/")
		kind := strings.Join(parts[:min(2, len(parts))], "/")
		log.transports = noted(log.transports, kind)
		if parts[0] == "NET" {
			gdr := strings.Contains(via, "/GDRDMA")
			log.gdr, log.noGDR = log.gdr || gdr, log.noGDR || !gdr
		}
		return
	}
	if loaded := ncclLoaded.FindStringSubmatch(line); loaded != nil {
		log.release = loaded[1]
		return
	}
	if tuned := ncclTuned.FindStringSubmatch(line); tuned != nil {
		size, err := strconv.ParseUint(tuned[1], 10, 64)
		name := ncclAlgorithmWords[tuned[2]]
		if n, numeric := strconv.Atoi(tuned[2]); numeric == nil && n >= 0 && n < len(ncclAlgorithms) {
			name = ncclAlgorithms[n]
		}
		if err == nil && name == "" {
			name = "unknown " + tuned[2]
		}
		if err == nil {
			log.algorithms[size] = noted(log.algorithms[size], name)
		}
		return
	}
	if channels := ncclChannels.FindStringSubmatch(line); channels != nil {
		log.channels = noted(log.channels, channels[1])
		return
	}
	if strings.HasPrefix(line, "NET/IB : Using") {
		var names []string
		for _, match := range ncclHCA.FindAllStringSubmatch(line, -1) {
			names = append(names, match[1])
		}
		if len(names) > 0 {
			log.hcas = noted(log.hcas, strings.Join(names, ","))
		}
	}
}

// between is what carried the traffic: of several nodes that between them, and
// of one node everything.
func (log ncclLog) between(nodes int) []string {
	if nodes == 1 {
		return log.transports
	}
	return slices.DeleteFunc(slices.Clone(log.transports), func(kind string) bool {
		return !strings.HasPrefix(kind, "NET/") && kind != "P2P/MNNVL"
	})
}

// gdrdma says whether the channels of the network use GPUDirect RDMA.
func (log ncclLog) gdrdma() string {
	switch {
	case log.gdr && log.noGDR:
		return "some"
	case log.gdr:
		return "yes"
	case log.noGDR:
		return "no"
	}
	return ""
}
