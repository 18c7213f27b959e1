package join

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ways are the networks that the benchmarks compare.
var ways = []struct {
	name          string
	joined, nat   bool
	hostsLoopback bool
}{
	{name: "loopback", hostsLoopback: true},
	{name: "bridge"},
	{name: "bridge+NAT", nat: true},
	{name: "joined", joined: true},
	{name: "joined+NAT", joined: true, nat: true},
}

// connected returns the two ends of a connection over a way.
func (r *rig) connected(joined, nat, loopback bool) (client, server *net.TCPConn) {
	r.t.Helper()
	start := func() {
		if joined {
			r.start()
		}
	}
	switch {
	case loopback:
		l, err := r.router.Listen(r.t.Context(), "127.0.0.1:0")
		r.must(err)
		r.t.Cleanup(func() { l.Close() })
		return r.dial(r.router, l.Addr().String(), l)
	case nat:
		r.must(r.router.Masquerade())
		l := r.listen(r.b)
		r.must(r.router.Publish(8080, l.Addr().(*net.TCPAddr).AddrPort()))
		start()
		client, server = r.dial(r.a, netip.AddrPortFrom(r.router.Address, 8080).String(), l)
	default:
		start()
		client, server = r.pair()
	}
	if joined {
		r.eventually("the connection is verified", func() bool { return r.found(client).Verified })
	}
	return client, server
}

// blocking returns a descriptor of the connection whose calls wait in the kernel, as a thread of Hadoop does.
func blocking(t testing.TB, c *net.TCPConn) int {
	t.Helper()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return fd
}

func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR || err == unix.EAGAIN { // a signal of Go's scheduler; EAGAIN: of a joined socket
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return os.ErrClosed
		}
		b = b[n:]
	}
	return nil
}

// BenchmarkRoundTrip reports round trips of 100 bytes one way and 200 bytes back (the paper's Figure 4).
func BenchmarkRoundTrip(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			r := build(b)
			client, server := r.connected(w.joined, w.nat, w.hostsLoopback)
			c, s := blocking(b, client), blocking(b, server)
			go func() {
				runtime.LockOSThread()
				request, answer := make([]byte, 100), make([]byte, 200)
				for readFull(s, request) == nil {
					if _, err := unix.Write(s, answer); err != nil {
						return
					}
				}
			}()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			request, answer := make([]byte, 100), make([]byte, 200)
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if _, err := unix.Write(c, request); err != nil {
					b.Fatal(err)
				}
				if err := readFull(c, answer); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "us-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "us-p99")
			if w.joined {
				if n := r.found(client); n.Client.Messages < uint64(len(took)) {
					b.Errorf("not joined: %+v", n)
				}
			}
		})
	}
}

// BenchmarkStream reports the rate of a stream that is written 64 KiB at a time.
func BenchmarkStream(b *testing.B) {
	buffer := make([]byte, piece)
	benchmarkStream(b, func(fd int) error {
		for rest := buffer; len(rest) > 0; {
			n, err := unix.Write(fd, rest)
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

// BenchmarkSendfile reports the rate of a stream from a cached file, 64 KiB at a time, as a DataNode sends.
func BenchmarkSendfile(b *testing.B) {
	file, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, piece)); err != nil {
		b.Fatal(err)
	}
	benchmarkStream(b, func(fd int) error {
		for at := int64(0); at < piece; {
			if n, err := unix.Sendfile(fd, int(file.Fd()), &at, piece-int(at)); n <= 0 {
				return errors.Join(io.ErrUnexpectedEOF, err)
			}
		}
		return nil
	})
}

const piece = 64 << 10

func benchmarkStream(b *testing.B, send func(fd int) error) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			r := build(b)
			client, server := r.connected(w.joined, w.nat, w.hostsLoopback)
			c, s := blocking(b, client), blocking(b, server)
			read := make(chan int64)
			go func() {
				runtime.LockOSThread()
				buffer := make([]byte, piece)
				var total int64
				for {
					n, err := unix.Read(s, buffer)
					if err == unix.EINTR || err == unix.EAGAIN { // a signal of Go's scheduler; EAGAIN: of a joined socket
						continue
					}
					if n <= 0 || err != nil {
						read <- total
						return
					}
					total += int64(n)
				}
			}()
			b.SetBytes(piece)
			n := 0
			for b.Loop() {
				if err := send(c); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if w.joined {
				f := r.found(client)
				b.ReportMetric(100*float64(f.Client.Bytes)/float64(n*piece), "%-joined")
				b.ReportMetric(float64(f.Client.Full), "full")
			}
			if err := unix.Shutdown(c, unix.SHUT_WR); err != nil {
				b.Fatal(err)
			}
			if got := <-read; got != int64(n)*piece {
				b.Errorf("read %d bytes of %d", got, int64(n)*piece)
			}
		})
	}
}
