package shortest

import "fmt"

// Limits of Slices.
const (
	MaxSlices = 16
	MinFloor  = 1  // percent; below it an application could starve
	MaxFloor  = 25 // percent
	// floors is the part of a queue's share that all floors together take at most.
	floors = 0.5
)

// Slices divides a queue's share by rank.
type Slices struct {
	// Percent holds the first slices in percent of the queue's share, the largest first. The applications of the
	// other ranks share the rest equally.
	Percent []int
	// Floor is the least slice of each application, in percent. All floors together take at most half of the
	// queue's share, so a long queue has smaller floors. 0 means no floor.
	Floor int
}

// Default returns the slices of a queue that states none: nine tenths for the first application, as in the
// experiment with mixed jobs of the disk contention paper (section V-D), and one percent for each.
func Default() Slices { return Slices{Percent: []int{90}, Floor: 1} }

// Validate returns an error if an application could get more than one that is before it, or if a floor cannot be
// kept.
func (s Slices) Validate() error {
	if len(s.Percent) == 0 || len(s.Percent) > MaxSlices {
		return fmt.Errorf("%d slices: give 1 to %d, such as [70, 20, 10]", len(s.Percent), MaxSlices)
	}
	sum := 0
	for i, p := range s.Percent {
		switch {
		case p < 1 || p > 100:
			return fmt.Errorf("slice %d %%: use 1 to 100", p)
		case i > 0 && p > s.Percent[i-1]:
			return fmt.Errorf("slice %d %% follows %d %%: give the largest first, because a shorter application must not get less", p, s.Percent[i-1])
		}
		sum += p
	}
	last := s.Percent[len(s.Percent)-1]
	switch {
	case sum > 100:
		return fmt.Errorf("the slices add up to %d %%: use at most 100 %%", sum)
	case 100-sum > last:
		return fmt.Errorf("the slices leave %d %% for the next application, which is more than the last slice of %d %%: give further slices, or larger ones", 100-sum, last)
	case s.Floor < 0 || s.Floor > MaxFloor:
		return fmt.Errorf("floor %d %%: use %d to %d", s.Floor, MinFloor, MaxFloor)
	}
	return nil
}

// FloorOf returns the least part, 0 to 1, that each of n applications gets.
func (s Slices) FloorOf(n int) float64 {
	return min(float64(s.Floor)/100, floors/float64(max(n, 1)))
}

// Parts returns the part of the queue's share for each of n applications, by rank. The parts never increase with
// the rank, are at least FloorOf(n), and their sum is 1. The slices must be valid.
func (s Slices) Parts(n int) []float64 {
	if n <= 0 {
		return nil
	}
	parts := make([]float64, n)
	rest, sum := 1.0, 0.0
	for i := range parts {
		if i < len(s.Percent) {
			parts[i] = float64(s.Percent[i]) / 100
			rest = max(0, rest-parts[i])
		} else {
			parts[i] = rest / float64(n-len(s.Percent))
		}
		sum += parts[i]
	}
	floor, above, missing := s.FloorOf(n), 0.0, 0.0
	for i := range parts {
		parts[i] /= sum // with fewer applications than slices
		above += max(0, parts[i]-floor)
		missing += max(0, floor-parts[i])
	}
	for i, p := range parts { // what floors need comes from all that are above them, in proportion
		parts[i] = floor + max(0, p-floor)*(1-missing/max(above, 1e-12))
	}
	return parts
}
