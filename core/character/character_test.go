package character

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = time.Second

var machine = Machine{Cores: 8, Memory: 16 << 30, Disks: 2, Network: 125e6}

// leg is a time of steady use, as parts of one machine.
type leg struct {
	seconds int
	use     Use
}

// sampled returns the samples of a machine on which an application runs these legs after a pause of
// 10 s, and then uses nothing for 10 s. They are a period apart.
func sampled(legs []leg, period time.Duration) []Sample {
	end := 20 * second
	for _, l := range legs {
		end += time.Duration(l.seconds) * second
	}
	state := func(t time.Duration) Sample {
		s, begin := Sample{At: t}, 10*second
		for _, l := range legs {
			d := time.Duration(l.seconds) * second
			in := min(max(t-begin, 0), d).Seconds()
			s.CPU += time.Duration(in * l.use[CPU] * float64(machine.Cores) * 1e9)
			s.Disk += time.Duration(in * l.use[Disk] * float64(machine.Disks) * 1e9)
			s.Read += int64(in * l.use[Disk] * 100e6)
			s.Network += int64(in * l.use[Network] * float64(machine.Network))
			if t >= begin && t < begin+d {
				s.Memory = int64(l.use[Memory] * float64(machine.Memory))
			}
			begin += d
		}
		return s
	}
	var all []Sample
	for t := time.Duration(0); t < end; t += period {
		all = append(all, state(t))
	}
	return append(all, state(end))
}

func profileOf(t interface{ Fatal(...any) }, samples ...[]Sample) *Profile {
	var nodes []Node
	for _, s := range samples {
		nodes = append(nodes, Node{Machine: machine, Samples: s})
	}
	p, err := New(nodes, DefaultThresholds)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func near(a, b, by float64) bool { return math.Abs(a-b) <= by }

// A job that reads, computes and writes.
var threePhases = []leg{{40, Use{0.1, 0.2, 0.9, 0}}, {80, Use{0.9, 0.7, 0.05, 0}}, {40, Use{0.1, 0.2, 0.8, 0.6}}}

func TestPhasesAndClasses(t *testing.T) {
	p := profileOf(t, sampled(threePhases, second))
	if len(p.Phases) != 3 || p.From != 10*second || p.To != 170*second {
		t.Fatalf("%v to %v: %+v", p.From, p.To, p.Phases)
	}
	for i, want := range []string{"disk-intensive", "CPU/memory-intensive", "disk/network-intensive"} {
		if got := Class(p.Phases[i].Intensive); got != want {
			t.Errorf("phase %d: %s, want %s: %+v", i, got, want, p.Phases[i].Use)
		}
	}
	if got := Class(p.Intensive); got != "CPU-intensive" || !near(p.Mean[CPU], 0.5, 0.001) {
		t.Errorf("%s: %+v", got, p.Mean)
	}
	if !near(p.Peak[Disk], 0.9, 0.001) || !near(p.Peak[CPU], 0.9, 0.001) {
		t.Errorf("peaks %+v", p.Peak)
	}
}

// The threshold itself is intensive, and just below is not.
func TestTheThreshold(t *testing.T) {
	if got := DefaultThresholds.intensive(Use{CPU: 0.5, Memory: math.Nextafter(0.5, 0), Disk: 0.5}); !slices.Equal(got, []Resource{CPU, Disk}) {
		t.Error(got)
	}
	if Class(nil) != "not intensive" || Class([]Resource{Disk, Memory}) != "disk/memory-intensive" {
		t.Error("names of classes")
	}
}

func TestNoUse(t *testing.T) {
	if _, err := New([]Node{{Machine: machine, Samples: []Sample{{}, {At: second, Memory: 5}}}, {}}, DefaultThresholds); err == nil {
		t.Error("no error")
	}
	// A node without use does not count.
	idle := []Sample{{}, {At: 300 * second}}
	if p := profileOf(t, sampled(threePhases, second), idle); p.Nodes != 1 || p.Capacity != machine {
		t.Errorf("%+v", p)
	}
}

func TestCapacityThatIsNotKnown(t *testing.T) {
	p, err := New([]Node{{Machine: Machine{Cores: 8}, Samples: sampled(threePhases, second)}}, DefaultThresholds)
	if err != nil || p.Mean[Disk] != 0 || p.Mean[CPU] == 0 || p.Amount.Disk == 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// Noise makes no phases, and a run has at most mostPhases of them.
func TestNoiseMakesNoPhases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amplitude := rapid.Float64Range(0, 0.4).Draw(t, "amplitude")
		var legs []leg
		for i := range 60 {
			legs = append(legs, leg{5, Use{0.4 + amplitude*float64(i%2), 0.2, 0.3, 0}})
		}
		if p := profileOf(t, sampled(legs, second)); len(p.Phases) != 1 {
			t.Errorf("%d phases at %v", len(p.Phases), amplitude)
		}
	})
}

func TestABoundOnPhases(t *testing.T) {
	var legs []leg
	for i := range 80 {
		legs = append(legs, leg{30, Use{float64(i % 2), 0, 0, 0}})
	}
	if p := profileOf(t, sampled(legs, second)); len(p.Phases) > mostPhases {
		t.Errorf("%d phases", len(p.Phases))
	}
	if p := profileOf(t, sampled([]leg{{40000, Use{CPU: 0.5}}}, 100*second)); len(p.Points) > mostPoints {
		t.Errorf("%d points", len(p.Points))
	}
}

func someLegs(t *rapid.T) (legs []leg) {
	for range rapid.IntRange(1, 5).Draw(t, "legs") {
		// Well away from the thresholds, since times are divided by the period of the samples. A quantum
		// of CPU shows where the application runs.
		level := rapid.SampledFrom([]float64{0.01, 0.3, 0.7, 0.95})
		legs = append(legs, leg{rapid.IntRange(20, 120).Draw(t, "seconds"), Use{level.Draw(t, "cpu"), level.Draw(t, "memory"), level.Draw(t, "disk"), level.Draw(t, "network")}})
	}
	return legs
}

// However often the counters are read, the totals and the classes are the same.
func TestThePeriodOfSamplesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		legs := someLegs(t)
		fine := profileOf(t, sampled(legs, second))
		coarse := profileOf(t, sampled(legs, rapid.SampledFrom([]time.Duration{2 * second, 5 * second}).Draw(t, "period")))
		if fine.Total.CPU != coarse.Total.CPU || fine.Total.Read != coarse.Total.Read || fine.Total.Disk != coarse.Total.Disk || fine.Total.Network != coarse.Total.Network {
			t.Fatalf("totals %+v and %+v", fine.Total, coarse.Total)
		}
		// The run is known to a period at each end, and memory between two samples is interpolated.
		by := 10 / (fine.To - fine.From).Seconds()
		for r := range Resources {
			if !near(fine.Mean[r], coarse.Mean[r], by) {
				t.Fatalf("%v: %v and %v", r, fine.Mean[r], coarse.Mean[r])
			}
			if near(fine.Mean[r], DefaultThresholds[r], by) {
				continue
			}
			if slices.Contains(fine.Intensive, r) != slices.Contains(coarse.Intensive, r) {
				t.Fatalf("%v: %v and %v", r, fine.Intensive, coarse.Intensive)
			}
		}
	})
}

// The phases cover the run without gaps, and their use adds up to the whole.
func TestPhasesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := profileOf(t, sampled(someLegs(t), second), sampled(someLegs(t), 2*second))
		from, sum := p.From, Use{}
		for _, f := range p.Phases {
			if f.From != from || f.To <= f.From {
				t.Fatalf("%+v", p.Phases)
			}
			from = f.To
			for r := range sum {
				sum[r] += f.Use[r] * (f.To - f.From).Seconds() / (p.To - p.From).Seconds()
			}
		}
		if from != p.To {
			t.Fatalf("the phases end at %v of %v", from, p.To)
		}
		for r := range sum {
			if !near(sum[r], p.Mean[r], 1e-6) {
				t.Fatalf("%v: %v and %v", Resource(r), sum[r], p.Mean[r])
			}
		}
	})
}

func TestPairs(t *testing.T) {
	disk := profileOf(t, sampled([]leg{{100, Use{0.1, 0.2, 0.9, 0}}}, second))
	cpu := profileOf(t, sampled([]leg{{100, Use{0.8, 0.7, 0.05, 0}}}, second))
	if s := Pair(disk, cpu); s.Verdict() != "good" || !near(s.Slowdown, 1, 1e-9) || s.Over != 0 {
		t.Errorf("%+v", s)
	}
	if s := Pair(disk, disk); s.Verdict() != "poor" || !near(s.Slowdown, 1.8, 0.01) || s.Contended != Disk || !near(s.Over, 1, 1e-9) {
		t.Errorf("%+v", s)
	}
	if s := Pair(cpu, cpu); s.Verdict() != "no" || s.Contended != CPU || !near(s.Memory, 1.4, 0.01) {
		t.Errorf("%+v", s)
	}
	for slowdown, want := range map[float64]string{1: "good", 1.1: "good", 1.11: "fair", 1.3: "fair", 1.31: "poor"} {
		if got := (Side{Slowdown: slowdown, Memory: 1}).Verdict(); got != want {
			t.Errorf("%v: %s", slowdown, got)
		}
	}
}

func TestPairsAreSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := profileOf(t, sampled(someLegs(t), second)), profileOf(t, sampled(someLegs(t), second))
		x, y := Pair(a, b), Pair(b, a)
		if !near(x.Slowdown, y.Slowdown, 1e-9) || !near(x.Over, y.Over, 1e-9) || x.Memory != y.Memory {
			t.Fatalf("%+v and %+v", x, y)
		}
		if x.Slowdown < 1 || x.Slowdown > 2.01 || x.Over > 1+1e-9 {
			t.Fatalf("%+v", x)
		}
	})
}
