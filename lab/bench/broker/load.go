package broker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"

	"penstock/core/coord"
	"penstock/node/coordination"
	"penstock/wire/cluster"
)

// Load configures a generator.
type Load struct {
	Request
	Address string // of the broker
	Certs   string // folder
	First   int    // number of the generator's first node
	Count   int    // number of the generator's nodes
}

// Look holds a generator's figures since the last question.
type Look struct {
	In      int           `json:"in"` // nodes with an answer on their present stream
	Answers int64         `json:"answers"`
	Sent    int64         `json:"sent"`     // bytes, including TLS
	Got     int64         `json:"received"` // bytes
	Entries int64         `json:"entries"`  // reported entries
	Lost    int64         `json:"lost"`     // streams
	Mistake string        `json:"mistake"`  // reason of the last lost stream
	CPU     time.Duration `json:"cpu_ns"`   // since the generator's start
	Delay   []byte        `json:"delay"`    // of answers, a histogram of microseconds
	Stale   []byte        `json:"stale"`    // of totals
}

// add adds another generator's figures, except the histograms.
func (l *Look) add(o Look) {
	l.In, l.Answers, l.Sent, l.Got, l.Entries, l.Lost, l.CPU = l.In+o.In, l.Answers+o.Answers, l.Sent+o.Sent, l.Got+o.Got, l.Entries+o.Entries, l.Lost+o.Lost, l.CPU+o.CPU
	l.Mistake = cmp.Or(o.Mistake, l.Mistake)
}

const (
	// A marker is an application that one node of a generator serves and some other nodes ask for.
	// The serving node reports the number of its report as the application's rate, so that the
	// askers recognise that report in a total.
	markers = 5
	askers  = 40 // per marker, if there are enough nodes
	// longest is the largest value of the histograms, in microseconds.
	longest = int64(10 * time.Minute / time.Microsecond)
	unknown = 5 // reports without an answer after which a node sends no further report, as in node/coordination
	// connecting bounds the nodes of a generator that wait for their first answer at the same time.
	// A real node has its own processor for that. With thousands of nodes on one processor, all
	// nodes would be late, and the broker would not be the reason.
	connecting = 150
)

type generator struct {
	Load
	in                              atomic.Int64
	answers, sent, got, entries, lo atomic.Int64
	markers                         []*marker
	ways                            chan struct{} // bounds the connecting nodes

	mu           sync.Mutex
	delay, stale *hdrhistogram.Histogram
	mistake      string
}

// marker holds the times of all reports about a marker, in the order of the reported rates.
type marker struct {
	mu   sync.Mutex
	sent []time.Time
}

// Generate emulates nodes until its input ends. The first line of the input is a Load. Each further
// line is a question; Generate answers it by writing a Look to out.
func Generate(ctx context.Context, in io.Reader, out io.Writer) error {
	questions := bufio.NewReader(in)
	g := &generator{delay: newHistogram(), stale: newHistogram(), ways: make(chan struct{}, connecting)}
	line, err := questions.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	if err := json.Unmarshal(line, &g.Load); err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer cancel()
	for range markers {
		g.markers = append(g.markers, &marker{})
	}
	var players []*player
	for i := range g.Count {
		p, err := g.player(i)
		if err != nil {
			return err
		}
		players = append(players, p)
	}
	for _, p := range players {
		nodes.Go(func() { p.run(ctx) })
	}
	for {
		if _, err := questions.ReadBytes('\n'); err != nil {
			return nil
		}
		if err := json.NewEncoder(out).Encode(g.look()); err != nil {
			return err
		}
	}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func (g *generator) look() Look {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it cannot fail for the own process
	l := Look{In: int(g.in.Load()), Answers: g.answers.Swap(0), Sent: g.sent.Swap(0), Got: g.got.Swap(0), Entries: g.entries.Swap(0), Lost: g.lo.Swap(0),
		CPU: time.Duration(used.Utime.Nano() + used.Stime.Nano())}
	g.mu.Lock()
	defer g.mu.Unlock()
	l.Delay, l.Stale, l.Mistake = encode(g.delay), encode(g.stale), g.mistake
	g.delay.Reset()
	g.stale.Reset()
	g.mistake = ""
	return l
}

func encode(h *hdrhistogram.Histogram) []byte {
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(err) // impossible: it encodes into memory
	}
	return b
}

func (g *generator) record(h *hdrhistogram.Histogram, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longest))
}

// player is an emulated node.
type player struct {
	g      *generator
	name   string
	secure func() (*grpc.ClientConn, error)
	random *rand.Rand
	names  []string
	rates  []uint64
	marker *marker // the marker that the node serves, as its last entry; nil: none
	asks   *marker // the marker that the node asks for, as its last entry; nil: none
	seen   uint64  // largest rate of the marker asks so far

	reached atomic.Bool // the broker's machine accepted this attempt's connection

	mu   sync.Mutex
	sent map[uint64]time.Time // times of the reports that have no answer yet, by sequence number
}

func name(i int) string { return fmt.Sprintf("node-%05d", i) }

func (g *generator) player(i int) (*player, error) {
	number := g.First + i
	p := &player{g: g, name: name(number), random: rand.New(rand.NewPCG(g.Seed, uint64(number)))}
	files := cluster.Files{CA: filepath.Join(g.Certs, "ca.pem"), Cert: filepath.Join(g.Certs, p.name+".pem"), Key: filepath.Join(g.Certs, p.name+".key")}
	secure, err := files.Client()
	if err != nil {
		return nil, err
	}
	p.secure = func() (*grpc.ClientConn, error) {
		// Small buffers: thousands of nodes are in this process.
		return coordination.Dial(g.Address, secure, grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				c, err := coordination.Connect(ctx, address)
				if err != nil {
					return nil, err
				}
				p.reached.Store(true)
				return counted{c, g}, nil
			}))
	}
	serves := int(2 * g.Served * float64(g.Applications) * p.random.Float64())
	for _, a := range p.random.Perm(g.Applications)[:min(max(serves, 1), g.Applications)] {
		p.names = append(p.names, "application_1700000000000_"+strconv.Itoa(a))
	}
	if m := i % markers; i/markers <= askers {
		p.names = append(p.names, fmt.Sprintf("marker-%d-%d", g.First, m))
		if i < markers {
			p.marker = g.markers[m]
		} else {
			p.asks = g.markers[m]
		}
	}
	p.rates = make([]uint64, len(p.names))
	return p, nil
}

// counted counts a connection's bytes.
type counted struct {
	net.Conn
	g *generator
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.g.got.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.g.sent.Add(int64(n))
	return n, err
}

// run opens a stream, and a new one after each stream's end, with the same pauses as a real node.
func (p *player) run(ctx context.Context) {
	wait := time.Duration(p.random.Int64N(int64(p.g.Period)))
	for retry := (coordination.Retry{Period: p.g.Period, Rand: p.random}); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		p.reached.Store(false)
		if err := p.stream(ctx); err != nil && ctx.Err() == nil {
			p.g.lo.Add(1)
			p.g.mu.Lock()
			p.g.mistake = err.Error()
			p.g.mu.Unlock()
		}
		if time.Since(began) > unknown*p.g.Period {
			retry.Reset()
		}
		wait = retry.After(p.reached.Load())
	}
}

func (p *player) stream(ctx context.Context) error {
	select {
	case p.g.ways <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	there := sync.OnceFunc(func() { <-p.g.ways })
	defer there()
	conn, err := p.secure()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := cluster.NewNodesClient(conn).Exchange(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.sent = map[uint64]time.Time{}
	p.mu.Unlock()
	var answered atomic.Uint64
	failed := make(chan error, 1)
	go func() { failed <- p.receive(s, &answered, there) }()
	ticker := time.NewTicker(p.g.Period)
	defer ticker.Stop()
	for sequence := uint64(0); ; {
		if sequence-answered.Load() < unknown {
			sequence++
			r := p.report(sequence)
			if err := s.Send(r); err != nil {
				return <-failed
			}
		}
		select {
		case <-ticker.C:
		case err := <-failed:
			return err
		}
	}
}

func (p *player) report(sequence uint64) *cluster.Report {
	r := &cluster.Report{Sequence: sequence}
	if sequence == 1 {
		r.Node = &cluster.Node{Name: p.name, Version: "bench", PeriodMs: uint32(p.g.Period.Milliseconds())}
		for i, n := range p.names {
			r.Names = append(r.Names, &cluster.Name{Entry: uint32(i), Application: n})
		}
	}
	now := time.Now()
	for i := range p.names {
		room := uint64(coord.Second)
		switch last := i == len(p.names)-1; {
		case last && p.marker != nil:
			p.marker.mu.Lock()
			p.rates[i] = uint64(len(p.marker.sent)) + 1
			p.marker.sent = append(p.marker.sent, now)
			p.marker.mu.Unlock()
		case last && p.asks != nil && sequence == 1:
			p.rates[i], room = 0, 0
		case last && p.asks != nil:
			continue
		case sequence > 1 && p.random.Float64() >= p.g.Changes:
			continue
		default:
			p.rates[i] = coord.Second/uint64(len(p.names))*9/10 + p.random.Uint64N(coord.Second/uint64(5*len(p.names)))
		}
		r.Entries, r.Rates, r.Rooms = append(r.Entries, uint32(i)), append(r.Rates, p.rates[i]), append(r.Rooms, room)
	}
	p.g.entries.Add(int64(len(r.Entries)))
	p.mu.Lock()
	p.sent[sequence] = now
	p.mu.Unlock()
	return r
}

func (p *player) receive(s cluster.Nodes_ExchangeClient, answered *atomic.Uint64, there func()) error {
	in := false
	defer func() {
		if in {
			p.g.in.Add(-1)
		}
	}()
	for {
		a, err := s.Recv()
		if err != nil {
			return err
		}
		now := time.Now()
		p.mu.Lock()
		sent, ok := p.sent[a.GetSequence()]
		delete(p.sent, a.GetSequence())
		p.mu.Unlock()
		if !ok {
			return fmt.Errorf("an answer to report %d, which does not wait for one", a.GetSequence())
		}
		if !in {
			in = true
			there()
			p.g.in.Add(1)
		}
		p.g.answers.Add(1)
		p.g.record(p.g.delay, now.Sub(sent))
		answered.Store(a.GetSequence())
		if p.asks == nil {
			continue
		}
		for i, e := range a.GetEntries() {
			if int(e) == len(p.names)-1 && a.GetRates()[i] > p.seen {
				p.saw(a.GetRates()[i], now)
			}
		}
	}
}

// saw records the age of each report that a total contains for the first time. It leaves out
// reports that were sent before this node had a stream.
func (p *player) saw(rate uint64, now time.Time) {
	p.asks.mu.Lock()
	from := p.seen
	if from == 0 {
		from = rate
	}
	var ages []time.Duration
	for i := from; i < rate && int(i) < len(p.asks.sent); i++ {
		ages = append(ages, now.Sub(p.asks.sent[i]))
	}
	p.asks.mu.Unlock()
	p.seen = rate
	for _, a := range ages {
		p.g.record(p.g.stale, a)
	}
}
