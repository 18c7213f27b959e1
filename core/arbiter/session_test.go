package arbiter_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
	"penstock/core/foreign"
	"penstock/core/reserve"
	"penstock/core/sfq"
)

// session runs a byte string as events, in any valid order and of any sizes, and checks the
// arbiter's invariants.
type session struct {
	t        fataler
	a        *arbiter.Arbiter
	cfg      arbiter.Config
	ops      []byte
	now      time.Duration
	last     time.Duration // the latest time so far
	mode     arbiter.Mode
	rules    [4]arbiter.Rule
	streams  []*sessionStream
	flying   []*arbiter.Request
	queries  int
	stuck    bool
	counters foreign.Counters
}

type sessionStream struct {
	o        arbiter.Opening
	at       *arbiter.Stream
	file     *sessionFile
	claimed  int64 // position that the process reports
	asked    int64 // end of the last request for the stream's data
	mark     int64
	closed   bool
	released bool
}

// passes reports whether the stream is a small read that does not wait.
func (x *sessionStream) passes() bool {
	return x.o.Passing && !x.o.Write && x.o.Kind != arbiter.Network && x.o.To > x.o.From && x.o.To-x.o.From <= 128*kib
}

// sessionFile is a file whose facts come from the byte string.
type sessionFile struct {
	s       *session
	written int64
	unknown bool
	missing int // eighths of each range that are not in the page cache
	deleted bool
}

func (f *sessionFile) Missing(off, length int64) int64 {
	f.s.queries++
	if off < 0 || length < 0 || off+length < off {
		f.s.t.Fatalf("the arbiter asked about the range %d+%d", off, length)
	}
	return length / 8 * int64(f.missing)
}

func (f *sessionFile) Saved(off, length int64) int64 {
	f.s.queries++
	return length / 8 * int64(8-f.missing)
}

func (f *sessionFile) Written() (int64, bool) {
	f.s.queries++
	return min(f.written, 1<<50), !f.unknown // at most the space of a file system
}

func (f *sessionFile) Deleted() bool {
	f.s.queries++
	return f.deleted
}

func (s *session) byte() int {
	if len(s.ops) == 0 {
		return 0
	}
	b := s.ops[0]
	s.ops = s.ops[1:]
	return int(b)
}

// size returns a number of bytes, from 0 up to the largest possible.
func (s *session) size() int64 {
	b := s.byte()
	switch {
	case b < 16:
		return int64(b) * 1000
	case b < 250:
		return int64(1)<<(b%63) + int64(b>>6)*4097
	default:
		return math.MaxInt64 - int64(b-250)
	}
}

func playSession(t fataler, ops []byte) {
	s := &session{t: t, ops: ops, now: 1, mode: arbiter.Enforce}
	b := s.byte()
	cfg := diskConfig(testRate, testSeek)
	cfg.Algorithm = arbiter.Algorithms[b%3]
	cfg.FixedDepth = 1 + b>>2%4
	cfg.Quantum = []int64{64 * kib, 256 * kib, 2 * mib}[b>>4%3]
	cfg.Staged, cfg.MaxFlows, cfg.LazyFiles = 4*cfg.Quantum, 2+b>>6, 1+b>>6
	if b = s.byte(); b&1 != 0 {
		cfg.WeightScale = 1000
	}
	if b&2 != 0 {
		cfg.MaxWait = time.Second
	}
	cfg.Ahead = 1 + b>>4
	cfg.Storage = float64(s.byte()%4) * 0.33
	if b&12 == 12 {
		cfg = arbiter.Config{Network: true, Rate: int64(b&16) << 16, MaxFlows: cfg.MaxFlows}
	}
	for i := range s.rules {
		s.rules[i] = arbiter.Rule{Weight: 1 + 7*i, Mode: arbiter.Enforce}
	}
	if err := cfg.Validate(); err != nil {
		t.Fatalf("%v", err)
	}
	var err error
	if s.a, err = arbiter.New(arbiter.Options{Config: cfg, Mode: s.mode, Policy: s.policy()}); err != nil {
		t.Fatalf("%v", err)
	}
	s.cfg = cfg
	for len(s.ops) > 0 {
		s.step()
	}
	s.end()
}

func (s *session) policy() arbiter.Policy {
	rules := s.rules
	return func(flow string) arbiter.Rule { return rules[int(flow[len(flow)-1])%len(rules)] }
}

// event performs an event and checks that it causes no more questions about files than most.
func (s *session) event(what string, most int, do func()) {
	s.t.Helper()
	before := s.queries
	do()
	if n := s.queries - before; n > most {
		s.t.Fatalf("%s asked %d questions about files", what, n)
	}
	if what, _, err := s.a.Fault(); err != nil && what != "device request" {
		s.t.Fatalf("%s: %v", what, err)
	}
	if wrong := s.a.Check(); wrong != "" {
		s.t.Fatalf("after %s: %s", what, wrong)
	}
}

const eventQuestions = 2*64 + 32 // bound for one event: skipped ranges, tails, and a few others

func (s *session) step() {
	op := s.byte()
	switch op % 16 {
	case 0, 1:
		s.open()
	case 2, 3, 4:
		if x := s.pick(); x != nil && !x.closed {
			pos := s.size()
			if op&16 != 0 && pos < math.MaxInt64-x.claimed {
				pos += x.claimed
			}
			x.claimed = max(x.claimed, pos)
			if op&32 != 0 && x.file != nil {
				x.file.written = max(x.file.written, pos)
			}
			s.event("progress", eventQuestions, func() { s.a.Progress(s.now, x.at, pos) })
		}
	case 5:
		if x := s.pick(); x != nil {
			s.close(x)
		}
	case 6, 7, 8:
		s.done()
	case 9, 10:
		s.pass()
	case 11:
		s.apply()
	case 12:
		if s.byte()&1 != 0 {
			s.event("parts", 0, func() { s.a.SetParts(arbiter.Parts{}) })
			break
		}
		p := arbiter.Parts{Flows: map[string]float64{}, Queues: map[string]float64{}}
		for i := range 4 {
			p.Flows[fmt.Sprint("f", i)] = float64(s.byte()) / 16
		}
		p.Queues["/a"], p.Queues["/a/b"] = float64(s.byte())/4, float64(s.byte())*1000
		s.event("parts", 0, func() { s.a.SetParts(p) })
	case 13:
		s.event("room", 0, func() { s.a.SetRoom(s.size(), s.size(), s.size()) })
	case 14:
		if x := s.pick(); x != nil {
			s.decide()
			x.mark = 0 // the mark may decrease
			s.event("reassign", eventQuestions, func() {
				s.a.Reassign(s.now, x.at, fmt.Sprint("f", s.byte()%6), fmt.Sprint("u", s.byte()%3))
			})
		}
	case 15:
		if x := s.pick(); x != nil && x.file != nil {
			b := s.byte()
			x.file.missing, x.file.unknown = b&7+b>>3&1, b&16 != 0
			x.file.deleted = x.file.deleted || b&32 != 0
			if b&64 != 0 {
				x.file.written = max(0, s.size())
			}
		}
	}
	if op < 192 || op%16 == 9 {
		s.decide()
	}
}

func (s *session) pick() *sessionStream {
	if len(s.streams) == 0 {
		return nil
	}
	return s.streams[s.byte()%len(s.streams)]
}

func (s *session) open() {
	b := s.byte()
	x := &sessionStream{o: arbiter.Opening{Flow: fmt.Sprint("f", b%6), User: fmt.Sprint("u", b>>3%3), Write: b&64 != 0, Asked: b&128 != 0}}
	x.o.From = s.size()
	x.o.To = s.size()
	if b = s.byte(); b&1 != 0 {
		x.o.Kind = arbiter.Intermediate
	}
	if b&2 != 0 {
		x.o.Patience = time.Duration(1 + (b-2)*int(100*time.Millisecond))
	}
	x.o.Passing = b&4 != 0
	x.claimed, x.asked = x.o.From, x.o.From
	if s.cfg.Network {
		x.o.Kind, x.o.Write = arbiter.Network, true
	} else {
		x.o.Turn = s.byte()&1 != 0
		x.file = &sessionFile{s: s, missing: b >> 4 % 9, written: max(0, x.o.From)}
		x.o.File = x.file
		if b&8 != 0 {
			x.o.Meta = &sessionFile{s: s, missing: 8, written: min(x.o.To/128, 3*mib)}
		}
		if !x.o.Write {
			x.file.written = x.o.To
			x.o.Missing = []int64{s.cfg.Quantum, s.cfg.Quantum / 2, 0}
		}
	}
	x.o.Ref = x
	s.streams = append(s.streams, x)
	s.event("open", eventQuestions, func() { x.at = s.a.Open(s.now, x.o) })
}

func (s *session) close(x *sessionStream) {
	if x.closed {
		return
	}
	x.closed = true
	pos := int64(-1)
	if s.byte()&1 != 0 {
		pos = s.size()
		x.claimed = max(x.claimed, pos)
	}
	if x.file != nil {
		x.claimed = max(x.claimed, x.file.written)
	}
	s.event("close", eventQuestions, func() { s.a.Close(s.now, x.at, pos) })
}

func (s *session) done() {
	if len(s.flying) == 0 {
		return
	}
	b := s.byte()
	i := b % len(s.flying)
	r := s.flying[i]
	s.flying = append(s.flying[:i], s.flying[i+1:]...)
	result := arbiter.Result{Moved: r.Length, Latency: time.Duration(1+b) * time.Millisecond}
	switch b >> 5 {
	case 1:
		result.Moved, result.Latency = 0, 0
	case 2:
		result.Moved /= 2
	case 3:
		if r.Write {
			result.Earlier, result.Moved = r.Length, 0
		}
	case 4:
		result.Err = errors.New("input/output error")
	}
	s.event("done", eventQuestions, func() { s.a.Done(s.now, r, result) })
}

// pass advances the time. Sometimes it steps back a little, as happens with the clocks of several
// threads.
func (s *session) pass() {
	b := s.byte()
	switch {
	case b < 32:
		s.now = max(1, s.now-time.Duration(b)*time.Microsecond)
	case b < 128:
		s.now += time.Duration(b) * 100 * time.Microsecond
	default:
		s.now += time.Duration(b-120) * time.Duration(b-120) * 5 * time.Millisecond
	}
	s.last = max(s.last, s.now)
	if b >= 128 {
		s.counters.Add(false, s.size()&(gib-1))
		s.event("observe", 0, func() { s.a.Observe(s.now, s.counters) })
		for _, f := range s.a.Snapshot(s.now).Flows {
			if f.Resident < 0 || f.Bytes[0] < 0 || f.Service < 0 {
				s.t.Fatalf("an account has decreased: %+v", f)
			}
		}
	}
}

func (s *session) apply() {
	b := s.byte()
	rule := arbiter.Rule{Weight: 1 + s.byte()*s.byte()*15, Mode: arbiter.Mode(b >> 2 % 3)}
	if b&64 != 0 {
		rule.Limit = int64(s.byte()) << 14
	}
	if b&128 != 0 {
		rule.Reserve = reserve.Rate{Part: float64(s.byte()) / 256, Strict: b&64 == 0}
		if b&16 != 0 {
			rule.Reserve = reserve.Rate{Bytes: int64(s.byte()) << (s.byte() % 32)}
		}
	}
	switch s.byte() % 4 {
	case 1:
		rule.Queue = arbiter.NewQueue([]sfq.Level{{Name: "a", Weight: 1 + b}})
	case 2:
		rule.Queue = arbiter.NewQueue([]sfq.Level{{Name: "a", Weight: 1 + b}, {Name: "b", Weight: 1 + s.byte()}})
	}
	s.decide()
	s.rules[b%4] = rule
	if b&32 != 0 {
		s.mode = arbiter.Mode(s.byte() % 3)
	}
	for _, x := range s.streams {
		x.mark = 0 // all marks may decrease
	}
	s.event("apply", 8*len(s.streams), func() { s.a.Apply(s.now, s.mode, s.policy()) })
}

func (s *session) decide() {
	s.t.Helper()
	open := 0
	for _, x := range s.streams {
		if !x.released {
			open++
		}
	}
	if s.a.LookDue(s.now) {
		if len(s.flying) > 0 {
			s.t.Fatalf("a look is due while %d requests are in flight", len(s.flying))
		}
		if b := s.byte(); b&1 == 0 { // the counters can be read
			s.counters.Add(b&2 != 0, int64(b)<<(b%32))
			s.event("look", 0, func() {
				s.a.Look(s.now, arbiter.Activity{Reading: int64(b & 4), Writing: int64(b & 8), Counters: s.counters})
			})
		}
	}
	var actions []arbiter.Action
	s.event("decide", eventQuestions+70*open, func() {
		some, again := s.a.Decide(s.now)
		if again <= s.now || again > max(s.now, s.last)+2*tickPeriod {
			s.t.Fatalf("at %v the arbiter requires the next call at %v", s.now, again)
		}
		actions = append(actions, some...)
	})
	turned := s.a.Stuck() != s.stuck // then marks may decrease
	s.stuck = s.a.Stuck()
	for _, action := range actions {
		x := action.Stream.Ref.(*sessionStream)
		if x.released {
			s.t.Fatalf("action %d for a released stream", action.Kind)
		}
		switch action.Kind {
		case arbiter.Start:
			s.started(x, action.Request)
		case arbiter.Mark:
			if x.passes() && action.Position != arbiter.Open {
				s.t.Fatalf("a passing read got the mark %d", action.Position)
			}
			if action.Position < 0 || action.Position < x.mark && !turned {
				s.t.Fatalf("a mark decreased from %d to %d: %+v claimed %d, state %s", x.mark, action.Position, x.o, x.claimed, arbiter.Describe(x.at))
			}
			x.mark = action.Position
		case arbiter.Release:
			x.released = true
		}
	}
	depth := s.cfg.FixedDepth
	switch s.cfg.Algorithm {
	case "sfq":
		depth = 1
	case "sfqd2":
		depth = 12
	}
	if len(s.flying) > depth {
		s.t.Fatalf("%d requests are in flight, the depth is %d", len(s.flying), depth)
	}
}

func (s *session) started(x *sessionStream, r *arbiter.Request) {
	s.flying = append(s.flying, r)
	end := r.Offset + r.Length
	switch {
	case r.Length <= 0 || r.Length > s.cfg.Quantum || r.Offset < 0 || end < r.Offset:
		s.t.Fatalf("a request of %d+%d", r.Offset, r.Length)
	case r.Write != x.o.Write:
		s.t.Fatalf("a request in the wrong direction")
	case r.Meta:
		if end > 4096+x.o.To/128+7 && !x.o.Write {
			s.t.Fatalf("a request for checksums up to %d of a block of %d", end, x.o.To)
		}
	case r.Offset < x.asked:
		s.t.Fatalf("a request at %d behind %d", r.Offset, x.asked)
	case r.Write && end > x.claimed || !r.Write && end > x.o.To:
		s.t.Fatalf("a request up to %d of a stream that claimed %d and ends at %d", end, x.claimed, x.o.To)
	default:
		x.asked = end
	}
}

// end closes all streams and completes all requests. The arbiter must then hold no resources.
func (s *session) end() {
	s.now = max(s.now, s.last)
	for _, x := range s.streams {
		s.close(x)
	}
	for round := range 2000 {
		if round == 1000 { // a backlog may be as large as the files
			s.mode = arbiter.Off
			s.event("apply", 8*len(s.streams), func() { s.a.Apply(s.now, s.mode, s.policy()) })
		}
		s.decide()
		if len(s.flying) == 0 {
			if s.a.Held() == "" {
				break
			}
			s.now += time.Second
		}
		for len(s.flying) > 0 {
			r := s.flying[0]
			s.flying = s.flying[1:]
			s.now += time.Millisecond
			s.event("done", eventQuestions, func() { s.a.Done(s.now, r, arbiter.Result{Moved: r.Length, Latency: time.Millisecond}) })
		}
	}
	s.decide()
	if held := s.a.Held(); held != "" {
		s.t.Fatalf("all streams are closed and all requests done, but the arbiter still holds:\n%s", held)
	}
	for i, x := range s.streams {
		if !x.released {
			s.t.Fatalf("stream %d was not released", i)
		}
	}
}

func TestSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		playSession(t, rapid.SliceOfN(rapid.Byte(), 2, 1500).Draw(t, "ops"))
	})
}

// TestLongSessions runs long sessions, in which many events coincide.
func TestLongSessions(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 16))
		ops := make([]byte, 4000)
		for i := range ops {
			ops[i] = byte(random.Uint32())
		}
		playSession(seeded{t, seed}, ops)
	}
}

// seeded adds the seed to the message of a failure.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("seed %d: "+format, append([]any{s.seed}, args...)...)
}

// FuzzArbiter runs byte strings as sessions.
func FuzzArbiter(f *testing.F) {
	f.Add([]byte{1, 0, 0, 64, 0, 80, 0, 2, 0, 40, 9, 200, 6, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 4000 {
			return
		}
		playSession(t, ops)
	})
}
