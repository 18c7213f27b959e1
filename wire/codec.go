package wire

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// codec processes a message's fields in wire order. It either appends them to b or reads them from
// b, so each layout and each limit is written once. It keeps the first error and does not process
// later fields.
type codec struct {
	b       []byte
	version uint8 // Version or Former
	writing bool
	err     error
}

func (c *codec) hello(m *Hello) {
	c.u32(&m.PID)
	c.u8((*uint8)(&m.Role), uint8(RoleDataNode), uint8(RoleWorker))
	c.check(m.Role != RoleWorker || c.version != Former, ErrBadValue)
	c.str(&m.Agent, 0, MaxAgentName)
	c.str(&m.Flow, 0, MaxFlowName)
	c.u32(&m.Threads)
	n := c.directories(len(m.Directories))
	for i := 0; i < n && c.err == nil; i++ {
		if !c.writing {
			// The list grows as strings arrive: a count alone must not allocate memory.
			m.Directories = append(m.Directories, "")
		}
		c.str(&m.Directories[i], 1, MaxPath)
	}
}

// directories encodes or decodes the number of a HELLO's directories or of a WELCOME's devices.
func (c *codec) directories(writing int) int {
	n := uint16(min(writing, math.MaxUint16))
	c.u16(&n)
	c.check(n <= MaxDirectories, ErrTooMany)
	return int(n)
}

func (c *codec) welcome(m *Welcome) {
	c.u8((*uint8)(&m.Mode), 0, uint8(ModeEnforce))
	c.u32(&m.Stride)
	c.u16(&m.HeartbeatMs)
	c.check(m.Stride >= 1 && m.Stride <= MaxStride && m.HeartbeatMs >= 1, ErrBadValue)
	n := c.directories(len(m.Devices))
	for i := 0; i < n && c.err == nil; i++ {
		if !c.writing {
			m.Devices = append(m.Devices, 0)
		}
		c.u8(&m.Devices[i], 0, MaxDevice)
	}
}

func (c *codec) open(m *Open) {
	c.u32(&m.Stream)
	c.u8((*uint8)(&m.Direction), uint8(Read), uint8(Write))
	c.u8((*uint8)(&m.Kind), uint8(Persistent), uint8(Network))
	if c.version == Former {
		c.flags(&m.Refusable)
	} else {
		c.flags(&m.Refusable, &m.Passing)
	}
	c.u32(&m.Patience)
	c.str(&m.Flow, 1, MaxFlowName)
	c.str(&m.Path, 1, MaxPath)
	c.str(&m.Meta, 0, MaxPath)
	c.str(&m.Client, 0, MaxAddress)
	c.str(&m.Server, 0, MaxAddress)
	c.str(&m.User, 0, MaxUser)
	c.offset(&m.From)
	c.offset(&m.To)
	c.check(m.To >= m.From || m.To == 0 && m.Direction == Write, ErrBadValue)
	c.check(!m.Passing || m.Direction == Read, ErrBadValue)
}

func (c *codec) progress(m *Progress) {
	c.u32(&m.Stream)
	c.offset(&m.Position)
}

func (c *codec) mark(m *Mark) {
	c.u32(&m.Stream)
	c.offset(&m.Position)
}

func (c *codec) close(m *Close) {
	c.u32(&m.Stream)
	c.offset(&m.Position)
	c.flags(&m.Failed)
}

func (c *codec) heartbeat(m *Heartbeat) {
	c.u64(&m.Tick)
	c.u8((*uint8)(&m.Mode), 0, uint8(ModeEnforce))
	c.u64(&m.Alive)
	if c.version == Former {
		return
	}
	c.u64(&m.Free)
	c.check(m.Free&(1<<NetworkDevice) == 0, ErrBadValue)
}

// check keeps the error if ok is false, unless there was an error before.
func (c *codec) check(ok bool, err error) {
	if !ok && c.err == nil {
		c.err = err
	}
}

// end returns the first error, or ErrTrailing if the payload has more bytes than its fields.
func (c *codec) end() error {
	c.check(len(c.b) == 0, ErrTrailing)
	return c.err
}

// take returns the payload's next n bytes. It returns nil beyond the end or after an error.
func (c *codec) take(n int) []byte {
	c.check(n <= len(c.b), ErrTruncated)
	if c.err != nil {
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *codec) u8(v *uint8, low, high uint8) {
	if c.writing {
		c.b = append(c.b, *v)
	} else if p := c.take(1); p != nil {
		*v = p[0]
	}
	c.check(*v >= low && *v <= high, ErrBadValue)
}

// flags encodes or decodes a byte with a bit for each value, from bit 0 on.
func (c *codec) flags(values ...*bool) {
	var flags uint8
	for i, v := range values {
		if *v {
			flags |= 1 << i
		}
	}
	c.u8(&flags, 0, 1<<len(values)-1)
	for i, v := range values {
		*v = flags>>i&1 == 1
	}
}

func (c *codec) u16(v *uint16) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else if p := c.take(2); p != nil {
		*v = binary.BigEndian.Uint16(p)
	}
}

func (c *codec) u32(v *uint32) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else if p := c.take(4); p != nil {
		*v = binary.BigEndian.Uint32(p)
	}
}

func (c *codec) u64(v *uint64) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else if p := c.take(8); p != nil {
		*v = binary.BigEndian.Uint64(p)
	}
}

// offset encodes or decodes a u64 that fits into a signed 64-bit integer in Go and in Java.
func (c *codec) offset(v *int64) {
	u := uint64(*v)
	c.u64(&u)
	*v = int64(u)
	c.check(*v >= 0, ErrBadValue)
}

func (c *codec) str(v *string, low, high int) {
	n := uint16(min(len(*v), math.MaxUint16))
	c.u16(&n)
	c.check(int(n) <= high, ErrTooLong)
	if c.writing && c.err == nil {
		c.b = append(c.b, *v...)
	} else if p := c.take(int(n)); p != nil {
		*v = string(p)
	}
	c.check(c.err != nil || len(*v) >= low && utf8.ValidString(*v) && strings.IndexByte(*v, 0) < 0, ErrBadString)
}
