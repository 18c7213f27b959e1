package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Frames travel between the daemon and the gate as messages of a socket pair, in the machine's byte
// order: both ends are the same binary. The first byte is the kind.
const (
	// From the daemon.
	frameBeat  = 'b' // sequence
	frameAllow = 'a' // ids
	frameMark  = 'm' // sequence, action; with a descriptor of a folder
	frameRules = 'r' // sequence, rules
	framePass  = 'p' // sequence, process ids
	frameFile  = 'f' // id of the request whose file is missing
	// From the gate.
	frameHello   = 'H' // process id, whether the kernel reports ranges
	framePong    = 'P' // sequence, statistics
	frameRequest = 'R' // a request; with a descriptor of the file, unless it was sent before
	frameDone    = 'D' // sequence, the error as text; empty: none
)

const (
	maxFrame  = 256 << 10
	maxAllows = 512
)

// action is what a frameMark does.
type action uint8

const (
	actionHold   action = iota // operations wait for an answer
	actionWatch                // files that are opened can be held later
	actionRemove               // the gate sees nothing of the file system
	lastAction   = actionRemove
)

var errShort = errors.New("a message between the daemon and the gate process is too short")

// reader reads the fields of a frame. After a field that is missing, err is set and fields are zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.err = errShort
		return make([]byte, min(max(n, 0), 8))
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.NativeEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.NativeEndian.Uint64(r.take(8)) }

func (r *reader) text() string {
	n := int(r.u8())
	if r.err != nil || n > len(r.b) {
		r.err = errShort
		return ""
	}
	return string(r.take(n))
}

// end returns the first error, or an error if something is left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("a message between the daemon and the gate process has %d more bytes than expected", len(r.b))
	}
	return r.err
}

func appendU32(b []byte, n uint32) []byte { return binary.NativeEndian.AppendUint32(b, n) }
func appendU64(b []byte, n uint64) []byte { return binary.NativeEndian.AppendUint64(b, n) }

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	return append(append(b, byte(len(s))), s...)
}

// appendRequest appends a request without its file.
func appendRequest(b []byte, r *Request) []byte {
	b = append(b, frameRequest, byte(r.Op), flag(r.Direct), flag(r.Async))
	b = appendU32(b, r.Class)
	b = appendU32(b, uint32(r.PID))
	b = appendU32(b, uint32(r.TID))
	for _, n := range [...]uint64{r.ID, uint64(r.Offset), uint64(r.Length), uint64(r.Resident), r.Dev, r.Inode} {
		b = appendU64(b, n)
	}
	return b
}

func parseRequest(b []byte) (r Request, err error) {
	in := reader{b: b}
	op := Op(in.u8())
	r.Op, r.Direct, r.Async = op, in.u8() != 0, in.u8() != 0
	r.Class = in.u32()
	r.PID, r.TID = int(int32(in.u32())), int(int32(in.u32()))
	r.ID = in.u64()
	r.Offset, r.Length, r.Resident = int64(in.u64()), int64(in.u64()), int64(in.u64())
	r.Dev, r.Inode = in.u64(), in.u64()
	if err := in.end(); err != nil {
		return Request{}, err
	}
	if op > lastOp {
		return Request{}, fmt.Errorf("a request of the unknown kind %d", op)
	}
	return r, nil
}

func appendRules(b []byte, seq uint64, rules []Rule) []byte {
	b = appendU64(append(b, frameRules), seq)
	for _, r := range rules {
		b = appendU32(b, r.Class)
		b = appendU32(b, uint32(r.PID))
		b = appendU64(b, uint64(int64(r.UID)))
		b = appendText(appendText(b, r.CgroupPrefix), r.Comm)
	}
	return b
}

func parseRules(b []byte) (seq uint64, rules []Rule, err error) {
	in := reader{b: b}
	seq = in.u64()
	for in.err == nil && len(in.b) > 0 {
		r := Rule{Class: in.u32(), PID: int(int32(in.u32())), UID: int(int64(in.u64()))}
		r.CgroupPrefix, r.Comm = in.text(), in.text()
		if in.err == nil {
			if err := r.Validate(); err != nil {
				return seq, nil, err
			}
			rules = append(rules, r)
		}
		if len(rules) > MaxRules {
			return seq, nil, fmt.Errorf("more than %d rules", MaxRules)
		}
	}
	return seq, rules, in.err
}

func appendPass(b []byte, seq uint64, pids []int) []byte {
	b = appendU64(append(b, framePass), seq)
	for _, pid := range pids {
		b = appendU32(b, uint32(pid))
	}
	return b
}

func parsePass(b []byte) (seq uint64, pids map[int]bool, err error) {
	in := reader{b: b}
	seq = in.u64()
	pids = map[int]bool{}
	for in.err == nil && len(in.b) > 0 {
		if pid := int(int32(in.u32())); in.err == nil {
			pids[pid] = true
		}
		if len(pids) > MaxPasses {
			return seq, nil, fmt.Errorf("more than %d processes in a pass list", MaxPasses)
		}
	}
	return seq, pids, in.err
}

func appendStats(b []byte, s *Stats) []byte {
	for _, f := range s.fields() {
		b = appendU64(b, *f)
	}
	return append(b, flag(s.Open))
}

func (s *Stats) parse(in *reader) {
	for _, f := range s.fields() {
		*f = in.u64()
	}
	s.Open = in.u8() != 0
}

func appendDone(b []byte, seq uint64, why error) []byte {
	b = appendU64(append(b, frameDone), seq)
	if why == nil {
		return appendText(b, "")
	}
	return appendText(b, why.Error())
}

func parseDone(b []byte) (seq uint64, why string, err error) {
	in := reader{b: b}
	seq, why = in.u64(), in.text()
	return seq, why, in.end()
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
