package character

// Side is the prediction for two applications side by side on the same machines.
type Side struct {
	// Slowdown is how many times longer both take while both run, at least 1.
	Slowdown float64
	// Contended is the resource that slows them down most; it has no meaning if Slowdown is 1.
	Contended Resource
	// Over is the part of the time in which a resource is asked for more than there is of it.
	Over float64
	// Memory is the sum of the highest uses of memory, as a part of it. Above 1 they do not fit.
	Memory float64
}

// The bounds of the verdicts.
const (
	goodSlowdown = 1.1
	fairSlowdown = 1.3
)

// Pair predicts how two applications run side by side. In each pair of phases the demands of both for
// CPU, disk and network are added up. The most contended resource slows both of them down, by its
// demand as a multiple of its capacity; below capacity nothing does. The prediction is the mean over
// all pairs of phases, weighted with the phases' times, because nobody knows beforehand which phases
// meet. It is an upper estimate where one of the two hardly uses the contended resource. Memory slows
// nobody down, but must fit. Pair(a, b) and Pair(b, a) are the same.
func Pair(a, b *Profile) Side {
	s := Side{Memory: a.Peak[Memory] + b.Peak[Memory]}
	whole := (a.To - a.From).Seconds() * (b.To - b.From).Seconds()
	var lost [Resources]float64
	for _, p := range a.Phases {
		for _, q := range b.Phases {
			part := (p.To - p.From).Seconds() * (q.To - q.From).Seconds() / whole
			worst, demand := CPU, 0.0
			for _, r := range []Resource{CPU, Disk, Network} {
				if d := p.Use[r] + q.Use[r]; d > demand {
					worst, demand = r, d
				}
			}
			if demand > 1 {
				lost[worst] += part * (demand - 1)
				s.Over += part
			}
		}
	}
	s.Slowdown = 1
	for r := range Resources {
		if s.Slowdown += lost[r]; lost[r] > lost[s.Contended] {
			s.Contended = r
		}
	}
	return s
}

// Verdict returns "good", "fair", "poor", or "no" if the memory of both does not fit.
func (s Side) Verdict() string {
	switch {
	case s.Memory > 1:
		return "no"
	case s.Slowdown <= goodSlowdown:
		return "good"
	case s.Slowdown <= fairSlowdown:
		return "fair"
	}
	return "poor"
}
