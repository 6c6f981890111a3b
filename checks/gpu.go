package checks

import (
	"fmt"
	"strconv"

	"github.com/rackproof/rackproof/evidence"
)

// The GPUs of a node have one name in all checks: gpuN is the N-th by its
// address on the PCI bus, from 0.

// usualGPUs is how many GPUs a node has where neither the test nor the fleet
// says so.
const usualGPUs = 8

// gpuLimit bounds the GPUs of one node, in a plan and in what a tool printed.
const gpuLimit = 1024

// expectedGPUs is how many GPUs each node has by the fleet's expect block; 0 if
// that says nothing of them. A check that needs the number takes usualGPUs then.
func expectedGPUs(f evidence.Fleet) (int, error) {
	for _, e := range f.Expect {
		if e.Fact != "gpus" {
			continue
		}
		text := expectedText(e.Value)
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text || n < 1 || n > gpuLimit {
			return 0, fmt.Errorf("the fleet expects %q gpus, which is no number from 1 to %d", e.Value, gpuLimit)
		}
		return n, nil
	}
	return 0, nil
}

func gpuName(i int) string { return "gpu" + strconv.Itoa(i) }

func gpuSubject(node string, i int) evidence.Subject { return partOf(node, gpuName(i)) }

// gpuSubjects are n GPUs of each node as subjects; nil where there are none.
func gpuSubjects(nodes []string, n int) []evidence.Subject {
	var subjects []evidence.Subject
	for _, node := range nodes {
		for gpu := range n {
			subjects = append(subjects, gpuSubject(node, gpu))
		}
	}
	return subjects
}
