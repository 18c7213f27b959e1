package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

type vector struct {
	Name, Hex, Error string
	Message          json.RawMessage
}

// fields is the union of the messages' fields. The names are those in the vectors.
type fields struct {
	Type        string
	PID         uint32
	Role        Role
	Agent       string
	Threads     uint32
	Directories []string
	Devices     []int
	Refusable   bool
	Passing     bool
	Patience    uint32
	Alive       uint64
	Free        uint64
	Mode        Mode
	Stride      uint32
	HeartbeatMs uint16 `json:"heartbeat_ms"`
	Stream      uint32
	Direction   Direction
	Flow        string
	Path, Meta  string
	Kind        Kind
	Client      string
	Server      string
	User        string
	From, To    int64
	Position    int64
	Failed      bool
	Tick        uint64
}

func (f fields) message(t testing.TB) Message {
	switch f.Type {
	case "hello":
		if len(f.Directories) == 0 {
			f.Directories = nil
		}
		return Hello{f.PID, f.Role, f.Agent, f.Flow, f.Threads, f.Directories}
	case "welcome":
		var devices []uint8
		for _, d := range f.Devices {
			devices = append(devices, uint8(d))
		}
		return Welcome{f.Mode, f.Stride, f.HeartbeatMs, devices}
	case "open":
		return Open{f.Stream, f.Direction, f.Kind, f.Refusable, f.Passing, f.Patience, f.Flow, f.Path, f.Meta, f.Client, f.Server, f.User, f.From, f.To}
	case "progress":
		return Progress{f.Stream, f.Position}
	case "mark":
		return Mark{f.Stream, f.Position}
	case "close":
		return Close{f.Stream, f.Position, f.Failed}
	case "heartbeat":
		return Heartbeat{f.Tick, f.Mode, f.Alive, f.Free}
	}
	t.Fatalf("vectors.json has a message of unknown type %q", f.Type)
	return nil
}

var vectorErrors = map[string]error{
	"eof": io.EOF, "cut off": io.ErrUnexpectedEOF, "oversized": ErrOversized,
	"unknown type": ErrUnknownType, "version": ErrVersion, "truncated": ErrTruncated,
	"trailing": ErrTrailing, "too long": ErrTooLong, "too many": ErrTooMany,
	"string": ErrBadString, "value": ErrBadValue,
}

func vectors(t testing.TB) []vector { return vectorsIn(t, "testdata/vectors.json") }

func vectorsIn(t testing.TB, file string) []vector {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(text, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func (v vector) frame(t testing.TB) []byte {
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return b
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) { v.check(t, NewReader, Version) })
	}
}

// The frames in former.json were written by the former release. The daemon reads them, and writes the same bytes.
func TestFormerVectors(t *testing.T) {
	read := 0
	for _, v := range vectorsIn(t, "testdata/former.json") {
		t.Run(v.Name, func(t *testing.T) { v.check(t, NewAgentReader, Former) })
		if _, err := NewReader(bytes.NewReader(v.frame(t))).Next(); v.Error == "" && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", v.Name, err)
		}
		if v.Error == "" {
			read++
		}
	}
	if read < 20 {
		t.Errorf("only %d good frames", read)
	}
}

// The first frame determines the version of a connection.
func TestTheVersionOfAnAgent(t *testing.T) {
	frame := func(version uint8) []byte {
		b, err := AppendTo(nil, Progress{1, 2}, Version)
		if err != nil {
			t.Fatal(err)
		}
		b[3] = version
		return b
	}
	for _, c := range []struct{ first, next, version uint8 }{
		{Version, Version, Version}, {Former, Former, Former}, {Version, Former, Version}, {Former, Version, Former},
		{Former - 1, Former, Former}, {Version + 1, Version, Version}, {0, Version, Version},
	} {
		r := NewAgentReader(bytes.NewReader(append(frame(c.first), frame(c.next)...)))
		for _, version := range []uint8{c.first, c.next} {
			want := version == c.version
			if _, err := r.Next(); (err == nil) != want || err != nil && !errors.Is(err, ErrVersion) {
				t.Errorf("%+v: version %d: %v", c, version, err)
			}
		}
		if r.Version() != c.version {
			t.Errorf("%+v: the connection has version %d", c, r.Version())
		}
	}
	for _, version := range []uint8{0, Former - 1, Version + 1} {
		if _, err := AppendTo(nil, Progress{1, 2}, version); !errors.Is(err, ErrVersion) {
			t.Errorf("a frame of version %d: %v", version, err)
		}
	}
}

// check reads the vector's frame, and writes its message again.
func (v vector) check(t *testing.T, reader func(io.Reader) *Reader, version uint8) {
	frame := v.frame(t)
	// One byte per read: the Reader must assemble frames from pieces of any size.
	got, err := reader(iotest.OneByteReader(bytes.NewReader(frame))).Next()
	if v.Error != "" {
		want := vectorErrors[v.Error]
		if want == nil || !errors.Is(err, want) || got != nil {
			t.Fatalf("got %v, %v; want error %q", got, err, v.Error)
		}
		return
	}
	var f fields
	if err := json.Unmarshal(v.Message, &f); err != nil {
		t.Fatal(err)
	}
	want := f.message(t)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	back, err := AppendTo([]byte("before"), want, version)
	if err != nil || string(back) != "before"+string(frame) {
		t.Fatalf("AppendTo returned %x, %v", back, err)
	}
}

// TestReaderContinuesAfterARefusedFrame checks that the Reader skips a refused frame, so its caller
// can report the error and continue.
func TestReaderContinuesAfterARefusedFrame(t *testing.T) {
	b, err := Append([]byte{0, 1, 99, Version, 7}, Mark{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(bytes.NewReader(b))
	var refused *FrameError
	if _, err := r.Next(); !errors.As(err, &refused) || refused.Type != 99 {
		t.Fatalf("got %v", err)
	}
	if m, err := r.Next(); err != nil || m != (Mark{1, 2}) {
		t.Fatalf("got %v, %v", m, err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("got %v, want io.EOF", err)
	}
}

func TestAppendRefuses(t *testing.T) {
	path := "/" + strings.Repeat("p", MaxPath-1)
	for name, c := range map[string]struct {
		m    Message
		want error
	}{
		"nil":            {nil, ErrUnknownType},
		"position":       {Progress{1, -1}, ErrBadValue},
		"mode":           {Heartbeat{1, 3, 1, 0}, ErrBadValue},
		"free network":   {Heartbeat{1, ModeEnforce, 1, 1 << NetworkDevice}, ErrBadValue},
		"passing write":  {Open{Direction: Write, Passing: true, Flow: "f", Path: "/b"}, ErrBadValue},
		"device":         {Welcome{ModeOff, 1, 1, []uint8{MaxDevice + 1}}, ErrBadValue},
		"devices":        {Welcome{ModeOff, 1, 1, make([]uint8, MaxDirectories+1)}, ErrTooMany},
		"flow":           {Open{Direction: Read, Path: "/b"}, ErrBadString},
		"very long flow": {Open{Direction: Read, Flow: strings.Repeat("f", 70_000), Path: "/b"}, ErrTooLong},
		"oversized":      {Hello{Role: RoleDataNode, Directories: []string{path, path, path}}, ErrOversized},
		"directories":    {Hello{Role: RoleDataNode, Directories: make([]string, 70_000)}, ErrTooMany},
	} {
		if b, err := Append([]byte("x"), c.m); !errors.Is(err, c.want) || string(b) != "x" {
			t.Errorf("%s: got %q, %v; want %v", name, b, err, c.want)
		}
	}
}

func TestHotMessagesDoNotAllocate(t *testing.T) {
	b := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		b, _ = Append(b[:0], Mark{1, 1 << 40})
		b, _ = Append(b[:0], Progress{1, 1 << 40})
	}); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
	// Reading allocates once: the message in its interface.
	frame := bytes.NewReader(b)
	r := NewReader(frame)
	if n := testing.AllocsPerRun(100, func() {
		frame.Reset(b)
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("Next allocates %v times", n)
	}
}

// FuzzReader checks that Next returns for any input, never panics, and accepts only messages with
// exactly one encoding.
func FuzzReader(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.frame(f))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		source := bytes.NewReader(in)
		r := NewReader(source)
		for at := 0; ; {
			m, err := r.Next()
			size := 0
			if len(in)-at >= HeaderLen {
				size = HeaderLen + int(in[at])<<8 + int(in[at+1])
			}
			var refused *FrameError
			if errors.As(err, &refused) && refused.Err != ErrOversized {
				at += size
				continue
			}
			if err != nil {
				return
			}
			again, err := Append(nil, m)
			if err != nil || !bytes.Equal(again, in[at:at+size]) {
				t.Fatalf("%+v was decoded from %x but is encoded as %x, %v", m, in[at:at+size], again, err)
			}
			at += size
		}
	})
}

func BenchmarkAppendMark(b *testing.B) {
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = Append(buf[:0], Mark{1, 1 << 40})
	}
}
