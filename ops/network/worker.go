package network

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// workerVariable makes this program a worker.
const workerVariable = "PENSTOCK_NETWORK_WORKER"

// RunIfWorker does a worker's work and ends the process if this process was started as an end of measured
// connections, or to keep a CPU awake. Otherwise it does nothing. The main function of a program that calls Measure, and the TestMain of its
// tests, must call RunIfWorker first.
func RunIfWorker() {
	occupyIfAsked()
	if os.Getenv(workerVariable) == "" {
		return
	}
	// A pause of the garbage collector would be in the figures. A worker lives for seconds and allocates little.
	debug.SetGCPercent(-1)
	if err := work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "penstock's network worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Actions of orders.
const (
	actListen  = "listen"  // open the ends of connections that wait for the peer
	actConnect = "connect" // open the ends that connect to the peer
	actOperate = "operate" // prepare MapReduce operations
	actRun     = "run"     // begin what was prepared
	actEnd     = "end"     // wait until all of it has ended, and report
)

// Kinds of connections' ends.
const (
	kindTCP     = "tcp" // round trips
	kindUDP     = "udp"
	kindSend    = "send" // streams
	kindReceive = "receive"
)

// order is a line to a worker. Each gets an answer, a line too.
type order struct {
	Action       string         `json:"action"`
	Kind         string         `json:"kind,omitempty"`
	Address      netip.AddrPort `json:"address,omitzero"` // to listen at, or to connect to
	RequestBytes int            `json:"request_bytes,omitempty"`
	AnswerBytes  int            `json:"answer_bytes,omitempty"`
	WriteBytes   int            `json:"write_bytes,omitempty"`
	PerMinute    int            `json:"per_minute,omitempty"` // operations
	TextBytes    int            `json:"text_bytes,omitempty"` // of an operation
	CPU          int            `json:"cpu"`                  // that the new thread is bound to; noCPU: any
	// Every is the time from one round trip over TCP to the next. Such trips continue until actEnd. 0: without pauses.
	Every time.Duration `json:"every_ns,omitempty"`
	// Of actRun: the time by the wall clock, in nanoseconds since 1970, and the lengths.
	StartNS  int64         `json:"start_ns,omitempty"`
	WarmUp   time.Duration `json:"warm_up_ns,omitempty"`
	Measured time.Duration `json:"measured_ns,omitempty"`
}

const noCPU = -1

// answer is a worker's line. Error is not empty if the order has failed; the other fields depend on the action.
type answer struct {
	Error      string        `json:"error,omitempty"`
	Thread     int           `json:"thread,omitempty"` // that does what was prepared
	Histogram  []byte        `json:"histogram,omitempty"`
	Lost       int64         `json:"lost,omitempty"`
	Bytes      int64         `json:"bytes,omitempty"`  // received
	Passed     time.Duration `json:"passed,omitempty"` // while they were received
	Operations int64         `json:"operations,omitempty"`
	Delay      time.Duration `json:"delay_ns,omitempty"` // of requesters in the run queue during trips; only with pauses
}

// worker is the state of a worker process. Each end of a connection has a thread of its own, whose accounts can be
// read until actEnd.
type worker struct {
	begin  chan struct{} // closed when what was prepared begins
	w      window        // set before begin is closed
	ended  atomic.Bool   // servers end
	finish chan struct{} // closed when threads may end
	all    sync.WaitGroup

	mu     sync.Mutex
	sum    answer
	counts *hdrhistogram.Histogram
	errs   []error
}

func newWorker() *worker { return &worker{begin: make(chan struct{}), finish: make(chan struct{})} }

// work carries out orders until in ends.
func work(in io.Reader, out io.Writer) error {
	lines, answers := bufio.NewReader(in), json.NewEncoder(out)
	w := newWorker()
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // the measurement has ended, or was killed
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		a, err := w.obey(o)
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if o.Action == actEnd {
			w = newWorker()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (w *worker) obey(o order) (answer, error) {
	switch o.Action {
	case actListen, actConnect:
		return w.open(o)
	case actOperate:
		op := newOperation(o.TextBytes, uint64(os.Getpid()))
		op.do() // the first time allocates memory
		return w.thread(o.CPU, func() (func() error, error) {
			return func() error {
				<-w.begin
				done := operate(op, o.PerMinute, w.w, func() bool { return w.ended.Load() || w.w.over(time.Now()) })
				w.add(func() { w.sum.Operations += done })
				return nil
			}, nil
		})
	case actRun:
		// From here on, the monotonic clock counts.
		start := time.Now().Add(time.Until(time.Unix(0, o.StartNS)))
		w.w = window{start: start.Add(o.WarmUp), end: start.Add(o.WarmUp + o.Measured)}
		close(w.begin)
		return answer{}, nil
	case actEnd:
		w.ended.Store(true)
		close(w.finish)
		w.all.Wait()
		if w.counts != nil {
			b, err := w.counts.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
			if err != nil {
				return answer{}, err
			}
			w.sum.Histogram = b
		}
		return w.sum, errors.Join(w.errs...)
	}
	return answer{}, fmt.Errorf("unknown action %q", o.Action)
}

// add changes the sums of all threads.
func (w *worker) add(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// thread starts a thread, which is bound to a CPU and first calls prepare. It returns the answer when prepare has
// returned. The thread then calls the function that prepare returned.
func (w *worker) thread(cpu int, prepare func() (func() error, error)) (answer, error) {
	prepared := make(chan error)
	var a answer
	w.all.Go(func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		a.Thread = unix.Gettid()
		run := func() error { return nil }
		err := bind(cpu)
		if err == nil {
			run, err = prepare()
		}
		prepared <- err
		if err != nil {
			return
		}
		if err := run(); err != nil {
			w.add(func() { w.errs = append(w.errs, err) })
		}
		<-w.finish
	})
	err := <-prepared
	return a, err
}

func bind(cpu int) error {
	if cpu == noCPU {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind a thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// open opens an end of a connection.
func (w *worker) open(o order) (answer, error) {
	return w.thread(o.CPU, func() (func() error, error) {
		fd, err := o.socket()
		if err != nil {
			return nil, err
		}
		if o.Action == actConnect {
			if err := connect(fd, o.Address); err != nil {
				return nil, errors.Join(fmt.Errorf("connect to %v: %w", o.Address, err), unix.Close(fd))
			}
			return func() error {
				<-w.begin
				return cmp.Or(w.transfer(fd, o), unix.Close(fd))
			}, nil
		}
		if o.Kind == kindUDP {
			return func() error {
				return cmp.Or(answerUDP(fd, o.RequestBytes, o.AnswerBytes, w.ended.Load), unix.Close(fd))
			}, nil
		}
		return func() error {
			defer unix.Close(fd)
			c, err := w.accept(fd)
			if err != nil || c < 0 {
				return err
			}
			if o.Kind == kindTCP {
				return cmp.Or(answerTCP(c, o.RequestBytes, o.AnswerBytes), unix.Close(c))
			}
			<-w.begin
			return cmp.Or(w.transfer(c, o), unix.Close(c))
		}, nil
	})
}

// transfer uses the end of an established connection, and adds up what it has measured.
func (w *worker) transfer(fd int, o order) error {
	switch o.Kind {
	case kindSend:
		return send(fd, o.WriteBytes, w.w)
	case kindReceive:
		bytes, passed, err := receive(fd, o.WriteBytes, w.w)
		w.add(func() { w.sum.Bytes, w.sum.Passed = w.sum.Bytes+bytes, max(w.sum.Passed, passed) })
		return err
	}
	var durations *hdrhistogram.Histogram
	var lost int64
	var delay time.Duration
	var err error
	if o.Every > 0 {
		durations, delay, err = prober(fd, o.RequestBytes, o.AnswerBytes, o.Every, w.ended.Load)
	} else {
		durations, lost, err = requester(fd, o.Kind, o.RequestBytes, o.AnswerBytes, w.w)
	}
	if err != nil {
		return err
	}
	w.add(func() {
		w.sum.Lost, w.sum.Delay = w.sum.Lost+lost, w.sum.Delay+delay
		if w.counts == nil {
			w.counts = newHistogram()
		}
		w.counts.Merge(durations)
	})
	return nil
}

// socket returns a new socket for an end. A server's socket is bound, and of TCP it listens.
func (o order) socket() (fd int, err error) {
	kind := unix.SOCK_STREAM
	if o.Kind == kindUDP {
		kind = unix.SOCK_DGRAM
	}
	if fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if o.Kind == kindTCP {
		// Requests and answers must not wait until they fill a packet. An accepted connection inherits this.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return -1, err
		}
	}
	if o.Action == actConnect {
		return fd, nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, socketAddress(o.Address)); err != nil {
		return -1, fmt.Errorf("bind to %v: %w", o.Address, err)
	}
	if o.Kind == kindUDP {
		return fd, nil
	}
	return fd, unix.Listen(fd, 1)
}

func socketAddress(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// connect connects, within tcpLost.
func connect(fd int, to netip.AddrPort) error {
	t := unix.NsecToTimeval(tcpLost.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t); err != nil {
		return err
	}
	err := unix.Connect(fd, socketAddress(to))
	if errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("no answer within %v", tcpLost)
	}
	return err
}

// accept returns the first connection; -1 if the measurement ends before there is one.
func (w *worker) accept(fd int) (int, error) {
	if err := receiveTimeout(fd, serverLook); err != nil {
		return -1, err
	}
	for !w.ended.Load() {
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			return c, receiveTimeout(c, 0) // it has inherited the limit
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return -1, fmt.Errorf("accept a connection: %w", err)
		}
	}
	return -1, nil
}
