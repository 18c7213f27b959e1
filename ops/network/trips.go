package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Protocols of round trips.
const (
	TCP = "tcp"
	UDP = "udp"
)

const (
	// minTripBytes is the least size of a request and of an answer: they carry a number.
	minTripBytes = 8
	maxTripBytes = 64 << 10
	// longestTrip is the greatest duration in histograms; longer ones count as this.
	longestTrip = 10 * time.Second
	// An answer that takes longer than this is lost. TCP does not lose answers, so there it is an error.
	udpLost = 200 * time.Millisecond
	tcpLost = 5 * time.Second
	// serverLook is how often a server without requests looks whether it should end.
	serverLook = 100 * time.Millisecond
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longestTrip.Nanoseconds(), 3) }

// window is when something is measured. Connections are used from before its start until its end and
// overtime, so that the last look at the threads' accounts, which takes milliseconds, finds them in use.
type window struct{ start, end time.Time }

const overtime = 300 * time.Millisecond

func (w window) contains(t time.Time) bool { return !t.Before(w.start) && t.Before(w.end) }

// over reports whether connections should no longer be used at t.
func (w window) over(t time.Time) bool { return t.After(w.end.Add(overtime)) }

// requester makes round trips on one connection until the window is over. It returns the durations of the trips that
// began in the window, in nanoseconds, and the number of lost ones.
func requester(fd int, protocol string, requestBytes, answerBytes int, w window) (durations *hdrhistogram.Histogram, lost int64, err error) {
	limit := tcpLost
	if protocol == UDP {
		limit = udpLost
	}
	if err := receiveTimeout(fd, limit); err != nil {
		return nil, 0, err
	}
	durations = newHistogram()
	request, answer := make([]byte, requestBytes), make([]byte, answerBytes)
	number := uint64(0)
	for now := time.Now(); !w.over(now); {
		number++
		binary.NativeEndian.PutUint64(request, number)
		if err := writeAll(fd, request); err != nil {
			return nil, 0, fmt.Errorf("send a request: %w", err)
		}
		if protocol == UDP {
			err = readNumber(fd, answer, number)
		} else {
			err = readAll(fd, answer)
		}
		after := time.Now()
		switch {
		case err == nil:
			if w.contains(now) {
				_ = durations.RecordValue(min(max(after.Sub(now).Nanoseconds(), 1), longestTrip.Nanoseconds()))
			}
		case errors.Is(err, unix.EAGAIN) && protocol == UDP:
			lost++
		case errors.Is(err, unix.EAGAIN):
			return nil, 0, fmt.Errorf("no answer within %v", limit)
		default:
			return nil, 0, fmt.Errorf("receive an answer: %w", err)
		}
		now = after
	}
	return durations, lost, nil
}

// readNumber reads datagrams until one has the number. Others are late answers to requests that were given up.
func readNumber(fd int, answer []byte, number uint64) error {
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, answer) })
		if err != nil {
			return err
		}
		if n >= minTripBytes && binary.NativeEndian.Uint64(answer) == number {
			return nil
		}
	}
}

// answerTCP answers requests until the connection ends.
func answerTCP(fd, requestBytes, answerBytes int) error {
	request, answer := make([]byte, requestBytes), make([]byte, answerBytes)
	for {
		if err := readAll(fd, request); err != nil {
			if errors.Is(err, errEnded) {
				return nil
			}
			return fmt.Errorf("receive a request: %w", err)
		}
		copy(answer, request[:minTripBytes])
		if err := writeAll(fd, answer); err != nil {
			if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
				return nil // the requester has ended
			}
			return fmt.Errorf("send an answer: %w", err)
		}
	}
}

// answerUDP answers datagrams of one requester until ended returns true.
func answerUDP(fd, requestBytes, answerBytes int, ended func() bool) error {
	if err := receiveTimeout(fd, serverLook); err != nil {
		return err
	}
	request, answer := make([]byte, requestBytes), make([]byte, answerBytes)
	known := false
	for !ended() {
		if !known {
			_, from, err := unix.Recvfrom(fd, request, unix.MSG_PEEK)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil {
				err = unix.Connect(fd, from) // the socket need not name the requester in each answer
			}
			if err != nil {
				return fmt.Errorf("receive the first request: %w", err)
			}
			known = true
		}
		n, err := unix.Read(fd, request)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), err == nil && n < minTripBytes:
			continue
		case errors.Is(err, unix.ECONNREFUSED):
			return nil // the requester has ended
		case err != nil:
			return fmt.Errorf("receive a request: %w", err)
		}
		copy(answer, request[:minTripBytes])
		if _, err := unix.Write(fd, answer); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("send an answer: %w", err)
		}
	}
	return nil
}

// errEnded means that the peer has closed the connection.
var errEnded = errors.New("the connection has ended")

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Read(fd, b) })
		if err != nil {
			if errors.Is(err, unix.ECONNRESET) {
				return errEnded
			}
			return err
		}
		if n == 0 {
			return errEnded
		}
		b = b[n:]
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Write(fd, b) })
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// retry calls f again while a signal interrupts it.
func retry(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func receiveTimeout(fd int, limit time.Duration) error {
	t := unix.NsecToTimeval(limit.Nanoseconds())
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
}
