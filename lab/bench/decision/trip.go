package decision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"penstock/lab/experiment/figures"
	"penstock/wire"
)

// Timing is one figure of the agent's side: nanoseconds of one call or trip.
type Timing struct {
	Name  string  `json:"name"`
	P50   float64 `json:"p50_ns"`
	P99   float64 `json:"p99_ns"`
	Count int     `json:"count"`
}

// warmUp is the number of unmeasured trips at the beginning, as a part of the number of measured
// trips.
const warmUp = 0.2

const tripTimeout = 10 * time.Second

// trips makes n round trips after a warm-up and returns the quantiles of their times.
func trips(ctx context.Context, name string, n int, trip func(i int) error) (Timing, error) {
	warm := int(warmUp * float64(n))
	times := make([]float64, 0, n)
	for i := range warm + n {
		if i%256 == 0 && ctx.Err() != nil {
			return Timing{}, ctx.Err()
		}
		from := time.Now()
		if err := trip(i); err != nil {
			return Timing{}, fmt.Errorf("%s: %w", name, err)
		}
		if i >= warm {
			times = append(times, float64(time.Since(from).Nanoseconds()))
		}
	}
	return Timing{Name: name, P50: figures.Quantile(times, 0.5), P99: figures.Quantile(times, 0.99), Count: n}, nil
}

// echoTrips measures a message of an OPEN's size without any processing.
func echoTrips(ctx context.Context, path string, n int) (Timing, error) {
	c, err := net.DialTimeout("unix", path, tripTimeout)
	if err != nil {
		return Timing{}, err
	}
	defer c.Close()
	frame, err := wire.Append(nil, openFrame(1, coldBlock, coldBytes))
	if err != nil {
		return Timing{}, err
	}
	answer := make([]byte, len(frame))
	return trips(ctx, "echo", n, func(int) error {
		if err := c.SetDeadline(time.Now().Add(tripTimeout)); err != nil {
			return err
		}
		if _, err := c.Write(frame); err != nil {
			return err
		}
		_, err := io.ReadFull(c, answer)
		return err
	})
}

func openFrame(stream uint32, block string, to int64) wire.Open {
	return wire.Open{Stream: stream, Direction: wire.Read, Flow: "application_1700000000000_0001", Path: block, To: to}
}

// openTrips measures the time from OPEN to the MARK that releases the whole block. A resident block
// costs no decision; a cold block passes through the scheduler as one quantum.
func openTrips(ctx context.Context, name, path, block string, n int) (Timing, error) {
	c, err := net.DialTimeout("unix", path, tripTimeout)
	if err != nil {
		return Timing{}, err
	}
	defer c.Close()
	r := wire.NewReader(c)
	buf, err := wire.Append(nil, wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleDataNode, Agent: "bench"})
	if err == nil {
		_, err = c.Write(buf)
	}
	if err != nil {
		return Timing{}, err
	}
	return trips(ctx, name, n, func(i int) error {
		if err := c.SetDeadline(time.Now().Add(tripTimeout)); err != nil {
			return err
		}
		stream := uint32(i + 1)
		if buf, err = wire.Append(buf[:0], openFrame(stream, block, coldBytes)); err != nil {
			return err
		}
		if i > 0 { // the end of the last stream is sent with the next OPEN
			if buf, err = wire.Append(buf, wire.Close{Stream: stream - 1, Position: coldBytes}); err != nil {
				return err
			}
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
		for {
			m, err := r.Next()
			if errors.Is(err, io.EOF) {
				return errors.New("the server closed the connection")
			}
			if err != nil {
				return err
			}
			if m, ok := m.(wire.Mark); ok && m.Stream == stream && m.Position >= coldBytes {
				return nil
			}
		}
	})
}
