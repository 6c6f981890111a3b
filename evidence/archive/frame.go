package archive

import (
	"bufio"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// oneFrame passes the bytes of one zstd frame, by the sizes in its block
// headers (RFC 8878, section 3.1.1), and no byte further. A decoder goes on
// with whatever frames follow and passes over those made to be skipped, so
// that it would neither show nor refuse what they hold.
type oneFrame struct {
	r        *bufio.Reader
	left     int64 // bytes before the next block header, or before the end
	last     bool  // there is no further block
	checksum bool  // four bytes of it follow the last block
}

// The types of a block that matter for its size.
const (
	blockRLE      = 1 // one byte, repeated
	blockReserved = 3
	blockHeader   = 3 // bytes
	frameChecksum = 4 // bytes
)

// newOneFrame reads the header of the frame. Of an empty reader it is an
// empty frame.
func newOneFrame(r io.Reader) (*oneFrame, error) {
	f := &oneFrame{r: bufio.NewReader(r)}
	start, err := f.r.Peek(zstd.HeaderMaxSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(start) == 0 {
		f.last = true
		return f, nil
	}
	var header zstd.Header
	if err := header.Decode(start); err != nil {
		return nil, err
	}
	if header.Skippable {
		return nil, errors.New("it begins with a zstd frame that is made to be skipped")
	}
	f.left, f.checksum = int64(header.HeaderSize), header.HasCheckSum
	return f, nil
}

// Read is io.EOF at the end of the frame and io.ErrUnexpectedEOF before it.
func (f *oneFrame) Read(b []byte) (int, error) {
	if f.left == 0 {
		if f.last {
			return 0, io.EOF
		}
		if err := f.block(); err != nil {
			return 0, err
		}
	}
	n, err := f.r.Read(b[:min(int64(len(b)), f.left)])
	f.left -= int64(n)
	return n, unexpected(err)
}

// block looks at the next block header: one bit says that it is the last, two
// are its type, and the rest is its size.
func (f *oneFrame) block() error {
	b, err := f.r.Peek(blockHeader)
	if err != nil {
		return unexpected(err)
	}
	field := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
	size := field >> 3
	switch field >> 1 & 3 {
	case blockRLE:
		size = 1
	case blockReserved:
		return errors.New("a zstd block of a reserved type")
	}
	f.left = blockHeader + size
	if f.last = field&1 == 1; f.last && f.checksum {
		f.left += frameChecksum
	}
	return nil
}

// ended reports whether nothing follows the frame.
func (f *oneFrame) ended() (bool, error) {
	_, err := f.r.Peek(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
