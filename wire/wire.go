// Package wire implements the frame format between the Java agent or plug-in and the node daemon,
// over a Unix stream socket. README.md describes the bytes.
//
// The staging design (docs/design/agent.md) needs one small frame per quantum in each direction,
// and none per packet. So the format is simple enough for two hand-written codecs of under 200
// lines, without generated code: fixed fields, big-endian, no options. Every frame contains the
// version. While a machine is upgraded, the daemon is of the new release, and the agents in running JVMs
// are of the former one. So the daemon also serves agents of the version before its own (NewAgentReader, AppendTo), and
// recognises the others, which it must refuse.
//
// Peers are not trusted. Lengths, counts, enumerations, positions and strings have limits, which
// are checked in both directions. Trailing bytes are an error. A Reader never uses more memory than
// one frame needs.
//
// testdata/vectors.json contains frames by name. The Go and Java tests read the same file, so the
// two codecs stay equal.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The errors of frames, for errors.Is.
var (
	ErrOversized   = errors.New("oversized frame: the payload is over 12288 bytes")
	ErrUnknownType = errors.New("unknown frame type")
	ErrVersion     = errors.New("unknown protocol version: use an agent of the daemon's release")
	ErrTruncated   = errors.New("payload ends within a field")
	ErrTrailing    = errors.New("bytes left over after the last field")
	ErrTooLong     = errors.New("string longer than its limit")
	ErrTooMany     = errors.New("more than 256 directories")
	ErrBadString   = errors.New("string is empty, not UTF-8 or contains a NUL byte")
	ErrBadValue    = errors.New("value out of its range")
)

// FrameError describes a refused frame. Unless Err is ErrOversized, the Reader continues with the
// next frame.
type FrameError struct {
	Type    Type
	Version uint8
	Err     error
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("wire: frame of type %d, version %d: %v", e.Type, e.Version, e.Err)
}

func (e *FrameError) Unwrap() error { return e.Err }

// Append appends m's frame to b. On an error it returns b unchanged. It does not allocate if b has
// room.
func Append(b []byte, m Message) ([]byte, error) { return AppendTo(b, m, Version) }

// AppendTo is Append for a peer of the given version, Version or Former. Fields that the version does not have are left
// out.
func AppendTo(b []byte, m Message, version uint8) ([]byte, error) {
	c := codec{b: append(b, 0, 0, 0, version), version: version, writing: true}
	c.check(version == Version || version == Former, ErrVersion)
	var t Type
	switch m := m.(type) {
	case Hello:
		t = TypeHello
		c.hello(&m)
	case Welcome:
		t = TypeWelcome
		c.welcome(&m)
	case Open:
		t = TypeOpen
		c.open(&m)
	case Progress:
		t = TypeProgress
		c.progress(&m)
	case Mark:
		t = TypeMark
		c.mark(&m)
	case Close:
		t = TypeClose
		c.close(&m)
	case Heartbeat:
		t = TypeHeartbeat
		c.heartbeat(&m)
	default:
		c.check(false, ErrUnknownType)
	}
	n := len(c.b) - len(b) - HeaderLen
	c.check(n <= MaxPayload, ErrOversized)
	if c.err != nil {
		return b, &FrameError{t, version, c.err}
	}
	binary.BigEndian.PutUint16(c.b[len(b):], uint16(n))
	c.b[len(b)+2] = byte(t)
	return c.b, nil
}

// Reader reads frames through one buffer with the size of the largest frame. It is not safe for
// concurrent use.
type Reader struct {
	r       *bufio.Reader
	version uint8 // of all frames; 0: the first frame, of Version or Former, determines it
}

// NewReader returns a Reader of r. It may read more from r than the messages that Next returns.
func NewReader(r io.Reader) *Reader {
	return &Reader{bufio.NewReaderSize(r, HeaderLen+MaxPayload), Version}
}

// NewAgentReader returns a Reader of the frames of an agent, whose version is Version or Former.
func NewAgentReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, HeaderLen+MaxPayload)}
}

// Version returns the version of the frames; 0 before the first good frame.
func (r *Reader) Version() uint8 { return r.version }

// Next returns the next message. The error is io.EOF if the input ends after a whole frame,
// io.ErrUnexpectedEOF if it ends within a frame, and a *FrameError for a refused frame.
func (r *Reader) Next() (Message, error) {
	head, err := r.r.Peek(HeaderLen)
	if err != nil {
		return nil, within(err, len(head) > 0)
	}
	n, t, v := int(binary.BigEndian.Uint16(head)), Type(head[2]), head[3]
	if n > MaxPayload {
		return nil, &FrameError{t, v, ErrOversized}
	}
	frame, err := r.r.Peek(HeaderLen + n)
	if err != nil {
		return nil, within(err, true)
	}
	var m Message
	if err = ErrVersion; r.accepts(v) {
		m, err = decode(t, v, frame[HeaderLen:])
	}
	if _, skip := r.r.Discard(len(frame)); skip != nil {
		return nil, skip
	}
	if err != nil {
		return nil, &FrameError{t, v, err}
	}
	r.version = v
	return m, nil
}

func (r *Reader) accepts(version uint8) bool {
	if r.version != 0 {
		return version == r.version
	}
	return version == Version || version == Former
}

func within(err error, cut bool) error {
	if cut && err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func decode(t Type, version uint8, payload []byte) (Message, error) {
	c := codec{b: payload, version: version}
	switch t {
	case TypeHello:
		var m Hello
		c.hello(&m)
		return m, c.end()
	case TypeWelcome:
		var m Welcome
		c.welcome(&m)
		return m, c.end()
	case TypeOpen:
		var m Open
		c.open(&m)
		return m, c.end()
	case TypeProgress:
		var m Progress
		c.progress(&m)
		return m, c.end()
	case TypeMark:
		var m Mark
		c.mark(&m)
		return m, c.end()
	case TypeClose:
		var m Close
		c.close(&m)
		return m, c.end()
	case TypeHeartbeat:
		var m Heartbeat
		c.heartbeat(&m)
		return m, c.end()
	}
	return nil, ErrUnknownType
}
