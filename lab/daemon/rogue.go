package daemon

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"penstock/wire"
)

// Bad is a message that no correct agent sends.
type Bad struct {
	Name  string
	Bytes []byte
}

// BadFrames returns messages, in a fixed order, after which the daemon must hang up. data is a data
// directory that the sender may register.
func BadFrames(data string) ([]Bad, error) {
	hello, err := Hello(data)
	if err != nil {
		return nil, err
	}
	welcome, err := wire.Append(nil, wire.Welcome{Mode: 2, Stride: 1, HeartbeatMs: 250})
	if err != nil {
		return nil, err
	}
	frame := func(typ, version byte, length int, payload ...byte) []byte {
		return append([]byte{byte(length >> 8), byte(length), typ, version}, payload...)
	}
	after := func(b []byte) []byte { return append(append([]byte(nil), hello...), b...) }
	noise := make([]byte, 64<<10)
	rand.NewChaCha8([32]byte{'p', 'e', 'n', 's', 't', 'o', 'c', 'k'}).Read(noise)
	noise[0], noise[1] = 0xff, 0xff // not a hello, regardless of the seed
	return []Bad{
		{"noise", noise},
		{"noise after a hello", after(noise)},
		{"oversized", frame(1, wire.Version, 0xffff)},
		{"oversized after a hello", after(append(frame(3, wire.Version, wire.MaxPayload+1), make([]byte, wire.MaxPayload+1)...))},
		{"of no type", after(frame(200, wire.Version, 0))},
		{"of a version to come", after(frame(4, 9, 12, make([]byte, 12)...))},
		{"too short for its type", after(frame(4, wire.Version, 3, 0, 0, 0))},
		{"a welcome from an agent", after(welcome)},
		{"progress before a hello", frame(4, wire.Version, 12, make([]byte, 12)...)},
		{"a string beyond its end", after(frame(3, wire.Version, 9, 0, 0, 0, 1, 1, 0xff, 0xff, 'a', 'b'))},
		{"two hellos", after(hello)},
		{"a stream's negative mark", after(frame(4, wire.Version, 12, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))},
	}, nil
}

// Hello returns an agent's first frame, as a faulty peer would send it.
func Hello(data string) ([]byte, error) {
	return wire.Append(nil, wire.Hello{PID: 1, Role: 1, Agent: "a peer that is wrong", Directories: []string{data}})
}

// Refused sends frames to the socket and waits until the daemon hangs up.
func Refused(socket string, frames []byte, patience time.Duration) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	// The daemon may hang up before it has read everything.
	sent := make(chan struct{})
	go func() { c.Write(frames); close(sent) }()
	_, err = io.Copy(io.Discard, c)
	<-sent
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return errors.New("the daemon does not hang up")
	}
	return nil
}
