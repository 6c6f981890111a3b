package rack

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"time"
)

// draw is 64 bits that depend on the seed and the keys alone: FNV-1a, and the
// finalizer of SplitMix64 so that keys that differ in one bit are unlike.
func (r *Rack) draw(keys ...any) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, r.seed) // a hash does not fail
	fmt.Fprintln(h, keys...)
	z := h.Sum64()
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Draw is 64 bits that depend on the seed and the keys alone, for what a tool
// shows that has no physics: process ids, addresses, handles.
func (r *Rack) Draw(keys ...any) uint64 { return r.draw(append([]any{"tool"}, keys...)...) }

// noise is a number from -1 to 1, mostly near 0: the mean of four uniform
// draws, stretched. It is bounded, so that a rack without a fault never comes
// out faulty by chance.
func (r *Rack) noise(keys ...any) float64 {
	bits := r.draw(keys...)
	sum := 0.0
	for range 4 {
		sum += float64(bits&0xffff)/0xffff - 0.5
		bits >>= 16
	}
	return sum / 2
}

// at is the time as a key of noise that changes ten times a second.
func (r *Rack) at(now time.Time) int64 { return int64(now.Sub(r.start) / (100 * time.Millisecond)) }

// hex is so many hex digits that the seed and the keys decide.
func (r *Rack) hex(digits int, keys ...any) string {
	var text []byte
	for i := 0; len(text) < digits; i++ {
		text = hex.AppendEncode(text, binary.LittleEndian.AppendUint64(nil, r.draw(append(keys, i)...)))
	}
	return string(text[:digits])
}

// uuidOf writes 32 hex digits as a UUID.
func uuidOf(digits string) string {
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:32]
}
