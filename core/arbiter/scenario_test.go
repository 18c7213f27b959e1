package arbiter_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/lab/scenario"
)

// TestScenarios runs the scenarios in testdata/*.txt. Each scenario shows one rule. Below a command
// are the arbiter's decisions: the requests that it started, the new marks of streams, and the
// streams that it released. If it has to be called before its next tick, the time is there too.
// After a change of the rules, rewrite the files with
// `go test ./core/arbiter -run TestScenarios -update` and read the difference.
//
//	disk rate=12M seek=10ms               a virtual disk: one head, one request after the other
//	disk stop|go                          requests do not end while the disk is stopped
//	new [depth=N|sfqd2] [quantum=N] ...   the disk's arbiter; reference=N is the reference latency, in
//	                                      units of a quantum's cost
//	new network rate=N                    the arbiter of a network interface
//	rule FLOW [weight=N] [limit=N] [mode=observe] [queue=a=3/b=1]
//	open S FLOW read|write|lazy|send [xN] [size=N] [from=N] [user=U] [patience=T] [meta=N] [asked]
//	    [sparse]
//	reader S [xN] [rate=N] [think=T]      a thread reads the stream
//	writer S [xN] [rate=N] [size=N]       a thread writes the stream
//	progress S POS; close S [xN] [POS]; reassign S FLOW [USER]
//	resident S FROM TO; saved S FROM TO; delete S [xN]
//	done rN [moved=N] [fails]             ends a request of a stopped disk
//	mode observe|enforce; parts FLOW=N... /QUEUE=N...; room [dirty=N] [lazy=N] [staged=N]
//	foreign every=T [seeks]               another process reads 64 KiB at this interval
//	run T                                 advances virtual time
//	quiet, loud                           turns the printing of decisions off and on
//	chain FLOW size=N think=T             a client that reads one file after the other
//	queries                               prints the most questions about files in one event
//	count                                 prints the disk's work for each flow since the last count
//	dump                                  prints the account
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t, rate: 12e6, seek: 10 * time.Millisecond, rules: map[string]arbiter.Rule{}, named: map[string]*stream{}, numbers: map[*arbiter.Request]int{}, chains: map[string]*int{}}
		return st.run
	})
}

// stage is the state of one running scenario.
type stage struct {
	t       *testing.T
	w       *world
	rate    float64
	seek    time.Duration
	mode    arbiter.Mode
	rules   map[string]arbiter.Rule
	named   map[string]*stream
	numbers map[*arbiter.Request]int
	chains  map[string]*int // files read to their ends, by flow
	last    int

	out     strings.Builder
	moment  []string // decisions at this moment
	quiet   bool
	counted int // entries of the disk's log that count has printed
	since   time.Duration
	known   time.Duration // the last printed time of the arbiter's next call
}

func (st *stage) run(words []string) string {
	st.out.Reset()
	st.do(words[0], words[1:])
	if st.w != nil {
		st.w.decide()
	}
	return st.out.String()
}

func (st *stage) printf(format string, args ...any) { fmt.Fprintf(&st.out, format+"\n", args...) }

func (st *stage) note(format string, args ...any) {
	if !st.quiet {
		st.moment = append(st.moment, fmt.Sprintf(format, args...))
	}
}

// flush prints the decisions of one moment.
func (st *stage) flush() {
	w := st.w
	if again := w.again; !st.quiet && again != max(w.tickAt, w.now+1) && again != st.known {
		st.known = again
		st.moment = append(st.moment, "call at "+clock(again))
	}
	if len(st.moment) > 0 {
		st.printf("%s  %s", clock(w.now), strings.Join(st.moment, "; "))
	}
	st.moment = st.moment[:0]
}

func (st *stage) do(command string, args []string) {
	switch command {
	case "disk":
		st.setDisk(args)
	case "new":
		st.begin(args)
	case "rule":
		st.rule(args)
	case "open":
		st.each(args, func(name string, args []string) { st.open(name, args) })
	case "reader", "writer":
		st.each(args, func(name string, args []string) {
			s := st.stream(name)
			end := s.to
			if v := scenario.Value(args, "size"); v != "" {
				end = st.size(v)
			} else if command == "writer" {
				end = math.MaxInt64 / 2
			}
			g := st.w.drive(s, float64(st.sizeOf(args, "rate")), end)
			g.pos, g.reported = st.sizeOf(args, "at"), st.sizeOf(args, "at")
			if v := scenario.Value(args, "think"); v != "" {
				g.think, g.every = scenario.Duration(st.t, v), st.sizeOf(args, "each")
			}
		})
	case "progress":
		s, pos := st.stream(args[0]), st.size(args[1])
		if s.write && s.file != nil && s.file.space < 0 {
			s.file.write(pos)
		}
		st.w.progress(s, pos)
	case "close":
		st.each(args, func(name string, args []string) {
			s, pos := st.stream(name), int64(-1)
			if len(args) > 0 {
				pos = st.size(args[0])
			}
			if s.agent != nil {
				pos = s.agent.pos
				s.agent.closed = true
			}
			if s.write && s.file != nil && s.file.space < 0 && pos >= 0 {
				s.file.write(pos)
			}
			st.w.close(s, pos)
		})
	case "reassign":
		s, user := st.stream(args[0]), ""
		if len(args) > 2 {
			user = args[2]
		}
		s.flow = args[1]
		st.w.event(func() { st.w.a.Reassign(st.w.now, s.at, args[1], user) })
	case "resident":
		st.stream(args[0]).file.resident.add(st.size(args[1]), st.size(args[2]))
	case "saved":
		st.stream(args[0]).file.saved.add(st.size(args[1]), st.size(args[2]))
	case "delete":
		st.each(args, func(name string, args []string) { st.stream(name).file.deleted = true })
	case "done":
		st.done(args)
	case "mode":
		mode, err := arbiter.ParseMode(args[0])
		if err != nil {
			st.t.Fatal(err)
		}
		st.mode = mode
		st.apply()
	case "parts":
		st.parts(args)
	case "room":
		st.w.a.SetRoom(st.sizeOf(args, "dirty"), st.sizeOf(args, "lazy"), st.sizeOf(args, "staged"))
	case "foreign":
		st.w.observe()
		st.w.foreign(scenario.Duration(st.t, scenario.Value(args, "every")), slices.Contains(args, "seeks"))
	case "observe":
		st.w.observe()
	case "run":
		st.w.run(scenario.Duration(st.t, args[0]))
	case "quiet", "loud":
		st.quiet = command == "quiet"
	case "count":
		st.count()
	case "dump":
		st.dump()
	case "chain":
		n, ok := st.chains[args[0]]
		if !ok {
			n = new(int)
			st.chains[args[0]] = n
		}
		st.w.chain(args[0], st.sizeOf(args, "size"), scenario.Duration(st.t, scenario.Value(args, "think")), n)
	case "queries":
		st.printf("at most %d questions about files at one event", st.w.mostQueries)
	default:
		st.t.Fatalf("unknown command %q", command)
	}
}

// each calls a function for a stream or, if args contains a word xN, for S1 to SN.
func (st *stage) each(args []string, do func(name string, args []string)) {
	for i, a := range args {
		if n, err := strconv.Atoi(strings.TrimPrefix(a, "x")); err == nil && strings.HasPrefix(a, "x") {
			rest := slices.Delete(slices.Clone(args), i, i+1)
			for k := range n {
				do(fmt.Sprint(rest[0], k+1), rest[1:])
			}
			return
		}
	}
	do(args[0], args[1:])
}

func (st *stage) stream(name string) *stream {
	s := st.named[name]
	if s == nil {
		st.t.Fatalf("no stream %q", name)
	}
	return s
}

func (st *stage) setDisk(args []string) {
	switch {
	case slices.Contains(args, "stop"):
		st.w.disk.stopped = true
	case slices.Contains(args, "go"):
		st.w.resume()
	default:
		st.rate = float64(st.sizeOf(args, "rate"))
		st.seek = scenario.Duration(st.t, scenario.Value(args, "seek"))
	}
}

// begin creates the arbiter of a disk with a profile, or of a network interface.
func (st *stage) begin(args []string) {
	st.mode = arbiter.Enforce
	cfg := diskConfig(st.rate, st.seek)
	cfg.Algorithm, cfg.FixedDepth = "sfqd", 1
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "network":
			cfg = arbiter.Config{Network: true}
		case "depth":
			if value == "sfqd2" {
				cfg.Algorithm = value
			} else {
				cfg.FixedDepth = int(st.size(value))
			}
		case "rate":
			cfg.Rate = st.size(value)
		case "reference":
			cfg.Depth.Read.Fixed = time.Duration(scenario.Number(st.t, value) * float64(st.seek))
			cfg.Depth.Read.PerMiB = time.Duration(scenario.Number(st.t, value) / st.rate * float64(mib) * float64(time.Second))
		case "quantum":
			cfg.Quantum = st.size(value)
		case "ahead":
			cfg.Ahead = int(st.size(value))
		case "run":
			cfg.Run = st.size(value)
		case "runtime":
			cfg.RunTime = scenario.Duration(st.t, value)
		case "backlog":
			cfg.Backlog = st.size(value)
		case "dirty":
			cfg.Dirty = st.size(value)
		case "lazy":
			cfg.Lazy = st.size(value)
		case "files":
			cfg.LazyFiles = int(st.size(value))
		case "staged":
			cfg.Staged = st.size(value)
		case "scale":
			cfg.WeightScale = int(st.size(value))
		case "mode":
			mode, err := arbiter.ParseMode(value)
			if err != nil {
				st.t.Fatal(err)
			}
			st.mode = mode
		default:
			st.t.Fatalf("unknown setting %q", a)
		}
	}
	w, err := newWorld(arbiter.Options{Config: cfg, Mode: st.mode, Policy: st.policy()}, st.rate, st.seek)
	if err != nil {
		st.t.Fatal(err)
	}
	st.w = w
	w.began = func(r *arbiter.Request, _ string) {
		st.last++
		st.numbers[r] = st.last
		s := r.Stream.Ref.(*stream)
		what := "reads"
		if r.Write {
			what = "drains"
		}
		if r.Meta {
			what += " checksums"
		}
		st.note("r%d %s %s %s+%s", st.last, s.name, what, bytes(r.Offset), bytes(r.Length))
	}
	w.ended = func(r *arbiter.Request, _ string, _ time.Duration) {
		st.note("r%d ends", st.numbers[r])
	}
	w.marked = func(s *stream, pos int64) { st.note("%s may go to %s", s.name, bytes(pos)) }
	w.freed = func(s *stream) { st.note("%s is released", s.name) }
	w.settled = st.flush
}

// diskConfig returns the configuration of a disk with a profile.
func diskConfig(rate float64, seek time.Duration) arbiter.Config {
	perMiB := time.Duration(float64(mib) / rate * float64(time.Second))
	c := cost.Coefficients{Random: cost.Line{Fixed: seek, PerMiB: perMiB}, Sequential: cost.Line{PerMiB: perMiB}}
	return arbiter.Config{
		Depth: depth.Config{Min: 1, Max: 12, Start: 2, Gain: 0.5, Read: depth.Line{Fixed: 2 * seek, PerMiB: 2 * perMiB}},
		Cost:  cost.Model{Read: c, Write: c},
	}
}

// policy returns the present rules.
func (st *stage) policy() arbiter.Policy {
	return func(flow string) arbiter.Rule {
		if rule, ok := st.rules[flow]; ok {
			return rule
		}
		return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
	}
}

func (st *stage) apply() {
	st.w.event(func() { st.w.a.Apply(st.w.now, st.mode, st.policy()) })
}

func (st *stage) rule(args []string) {
	rule := arbiter.Rule{Weight: 1, Mode: arbiter.Enforce, Limit: st.sizeOf(args, "limit")}
	if v := scenario.Value(args, "weight"); v != "" {
		rule.Weight = int(st.size(v))
	}
	if v := scenario.Value(args, "mode"); v != "" {
		mode, err := arbiter.ParseMode(v)
		if err != nil {
			st.t.Fatal(err)
		}
		rule.Mode = mode
	}
	if v := scenario.Value(args, "reserve"); v != "" {
		part, ok, err := reserve.ParsePart(v)
		if err != nil {
			st.t.Fatal(err)
		}
		if rule.Reserve = (reserve.Rate{Part: part, Strict: slices.Contains(args, "strict")}); !ok {
			rule.Reserve.Bytes = st.size(v)
		}
	}
	if v := scenario.Value(args, "queue"); v != "" {
		var levels []sfq.Level
		for _, l := range strings.Split(v, "/") {
			name, weight, _ := strings.Cut(l, "=")
			levels = append(levels, sfq.Level{Name: name, Weight: int(st.size(weight))})
		}
		rule.Queue = arbiter.NewQueue(levels)
	}
	st.rules[args[0]] = rule
	if st.w != nil {
		st.apply()
	}
}

func (st *stage) open(name string, args []string) {
	o := arbiter.Opening{Flow: args[0], From: st.sizeOf(args, "from"), To: st.sizeOf(args, "size"), User: scenario.Value(args, "user")}
	o.Asked = slices.Contains(args, "asked")
	if v := scenario.Value(args, "patience"); v != "" {
		o.Patience = scenario.Duration(st.t, v)
	}
	s := &stream{name: name}
	switch args[1] {
	case "read":
	case "lazy":
		o.Write, o.Kind = true, arbiter.Intermediate
	case "write":
		o.Write = true
	case "send":
		o.Write, o.Kind = true, arbiter.Network
	default:
		st.t.Fatalf("open as %q", args[1])
	}
	if o.Kind != arbiter.Network {
		s.file = st.w.newFile(o.To)
		if o.Write {
			s.file.size = 0
		}
		if slices.Contains(args, "sparse") {
			s.file.size, s.file.space = o.To, 0
		}
		if v := scenario.Value(args, "meta"); v != "" {
			s.meta = st.w.newFile(st.size(v))
		}
	}
	st.named[name] = s
	st.w.open(s, o)
}

var errDisk = errors.New("input/output error")

func (st *stage) done(args []string) {
	d := &st.w.disk
	for i, h := range d.held {
		if fmt.Sprint("r", st.numbers[h.r]) != args[0] {
			continue
		}
		d.held = slices.Delete(d.held, i, i+1)
		result := h.r.File().(*file).work(h.r)
		if v := scenario.Value(args, "moved"); v != "" {
			result.Moved = st.size(v)
		}
		result.Latency = st.w.now - h.at
		if slices.Contains(args, "fails") {
			result.Err = errDisk
		}
		st.w.finish(h.r, h.flow, 0, result)
		return
	}
	st.t.Fatalf("no request %s is held by the disk", args[0])
}

func (st *stage) parts(args []string) {
	var p arbiter.Parts
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		n := scenario.Number(st.t, value)
		if strings.HasPrefix(name, "/") {
			if p.Queues == nil {
				p.Queues = map[string]float64{}
			}
			p.Queues[name] = n
			continue
		}
		if p.Flows == nil {
			p.Flows = map[string]float64{}
		}
		p.Flows[name] = n
	}
	st.w.a.SetParts(p)
}

// count prints the disk's work for each flow.
func (st *stage) count() {
	type sum struct {
		bytes [2]int64
		took  time.Duration
	}
	sums, all := map[string]sum{}, time.Duration(0)
	var names []string
	for _, e := range st.w.disk.log[st.counted:] {
		s, ok := sums[e.flow]
		if !ok {
			names = append(names, e.flow)
		}
		if e.write {
			s.bytes[1] += e.bytes
		} else {
			s.bytes[0] += e.bytes
		}
		s.took += e.took
		all += e.took
		sums[e.flow] = s
	}
	st.counted = len(st.w.disk.log)
	passed := st.w.now - st.since
	st.since = st.w.now
	slices.Sort(names)
	for _, name := range names {
		s := sums[name]
		st.printf("%s: %s read, %s written, %.1f %% of the disk's work", name, mebi(s.bytes[0]), mebi(s.bytes[1]), 100*float64(s.took)/float64(all))
	}
	for _, name := range names {
		if n := st.chains[name]; n != nil {
			st.printf("%s has read %d files", name, *n)
			*n = 0
		}
	}
	st.printf("the disk worked %.1f %% of %.1fs", 100*float64(all)/float64(passed), passed.Seconds())
}

// dump prints the account.
func (st *stage) dump() {
	snap := st.w.a.Snapshot(st.w.now)
	line := fmt.Sprintf("depth %d, outstanding %d, backlog %s, staged %s", snap.Depth, snap.Outstanding, bytes(snap.Backlog), bytes(snap.Staged))
	if snap.Control != nil {
		line += fmt.Sprintf(", D %.1f", snap.Control.Depth)
	}
	if snap.Stuck {
		line += ", stuck"
	}
	if snap.Errors > 0 {
		line += fmt.Sprintf(", %d errors", snap.Errors)
	}
	st.printf("%s", line)
	for _, f := range snap.Flows {
		line := fmt.Sprintf("%s: %s, weight %d", f.Name, f.Mode, f.Weight)
		add := func(show bool, format string, args ...any) {
			if show {
				line += fmt.Sprintf(", "+format, args...)
			}
		}
		add(f.Part > 0, "part %.4g", f.Part)
		add(f.Queue != "", "in %s, entitled to %.4g", f.Queue, f.Entitled)
		add(f.Limit > 0, "limit %s/s", bytes(f.Limit))
		add(f.Reserve.Rate != (reserve.Rate{}), "reserve %s (%.3f of the device; %s moved; kept %.1fs, broken %.1fs)", f.Reserve.Rate,
			f.Reserve.Promised, bytes(f.Reserve.Moved), f.Reserve.Kept.Seconds(), f.Reserve.Broken.Seconds())
		add(f.Reserve.Verdict.Granted < 1 && f.Reserve.Verdict.State != reserve.Unused, "which is %s: %.3f of it fits", f.Reserve.Verdict.State, f.Reserve.Verdict.Fits)
		add(true, "%d streams, %d ready", f.Streams, f.Queued)
		add(f.Waiting > 0, "%d wait for leases", f.Waiting)
		add(f.Backlog > 0, "backlog %s", bytes(f.Backlog))
		add(f.Lazy > 0, "%s of it lazy", bytes(f.Lazy))
		add(f.Kept > 0, "%d kept", f.Kept)
		add(f.Bytes != [2]int64{}, "read %s, written %s", bytes(f.Bytes[0]), bytes(f.Bytes[1]))
		add(f.Resident > 0, "%s resident", bytes(f.Resident))
		add(f.Behind > 0, "%s behind", bytes(f.Behind))
		add(f.Forced > 0, "forced %d of %s", f.Forced, bytes(f.ForcedBytes))
		add(f.LimitWaits > 0, "%d waits for the limit", f.LimitWaits)
		add(f.Dropped > 0, "dropped %d files of %s", f.Dropped, bytes(f.DroppedBytes))
		add(f.WouldWait > 0, "would have waited %.3fs", f.WouldWait.Seconds())
		st.printf("%s", line)
	}
}

// size parses a number of bytes, or any whole number: 64K, 2M, 4T.
func (st *stage) size(word string) int64 {
	st.t.Helper()
	shift := strings.Index("KMGT", word[len(word)-1:])
	if shift < 0 {
		return int64(scenario.Number(st.t, word))
	}
	return int64(scenario.Number(st.t, word[:len(word)-1]) * float64(int64(1)<<(10*(shift+1))))
}

func (st *stage) sizeOf(words []string, key string) int64 {
	st.t.Helper()
	if v := scenario.Value(words, key); v != "" {
		return st.size(v)
	}
	return 0
}

func clock(at time.Duration) string { return fmt.Sprintf("%.3fs", at.Seconds()) }

func mebi(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/float64(mib)) }

func bytes(n int64) string {
	switch {
	case n == arbiter.Open:
		return "the end"
	case n != 0 && n%gib == 0:
		return fmt.Sprint(n/gib, "G")
	case n != 0 && n%mib == 0:
		return fmt.Sprint(n/mib, "M")
	case n != 0 && n%kib == 0:
		return fmt.Sprint(n/kib, "K")
	}
	return fmt.Sprint(n)
}
