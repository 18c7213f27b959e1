package network

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	minWriteBytes = 1
	maxWriteBytes = 4 << 20
	// streamStuck is how long a stream may stand still.
	streamStuck = 5 * time.Second
)

// send writes until the window is over, and closes its direction of the connection.
func send(fd, writeBytes int, w window) error {
	t := unix.NsecToTimeval(streamStuck.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t); err != nil {
		return err
	}
	b := make([]byte, writeBytes)
	for !w.over(time.Now()) {
		if err := writeAll(fd, b); err != nil {
			if errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("the peer reads nothing for %v", streamStuck)
			}
			return fmt.Errorf("send: %w", err)
		}
	}
	return unix.Shutdown(fd, unix.SHUT_WR)
}

// receive reads until the peer has closed its direction. It returns the bytes that it received in the window, and
// the time between the first and the last of the reads that it counts.
func receive(fd, readBytes int, w window) (bytes int64, passed time.Duration, err error) {
	if err := receiveTimeout(fd, streamStuck); err != nil {
		return 0, 0, err
	}
	b := make([]byte, readBytes)
	var first, last time.Time
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, b) })
		switch {
		case errors.Is(err, unix.EAGAIN):
			return 0, 0, fmt.Errorf("the peer sends nothing for %v", streamStuck)
		case err != nil:
			return 0, 0, fmt.Errorf("receive: %w", err)
		case n == 0:
			return bytes, last.Sub(first), nil
		}
		switch now := time.Now(); {
		case !w.contains(now):
		case first.IsZero():
			first, last = now, now
		default:
			bytes, last = bytes+int64(n), now
		}
	}
}
