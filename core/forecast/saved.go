package forecast

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Entry is what a History knows of one kind.
type Entry struct {
	Kind  Kind
	Curve *Curve
}

// Entries returns what is known of all kinds, last used first.
func (h *History) Entries() []Entry {
	all := make([]Entry, 0, h.Len())
	for e := h.order.Front(); e != nil; e = e.Next() {
		l := e.Value.(*learned)
		all = append(all, Entry{l.kind, l.curve})
	}
	return all
}

// Restore adds entries, last used first. An entry replaces what is known of its kind; the other kinds stay. The bounds of a
// History hold, so the entries that were used last displace others.
func (h *History) Restore(all []Entry) {
	for i := len(all) - 1; i >= 0; i-- {
		h.put(all[i].Kind, all[i].Curve)
	}
}

// Values are the contents of a Curve, as they are kept outside of the program. Numbers have savedDigits digits, which is far more
// than a forecast's precision. The slices have one value for each of points + 1 points of the progress.
type Values struct {
	Runs       int       `json:"runs"`
	X          float64   `json:"x"`
	First      int       `json:"first"`
	C          []float64 `json:"c"`
	B          []float64 `json:"b"`
	Spread     []float64 `json:"spread"`
	Weight     []float64 `json:"weight"`
	Reach      []float64 `json:"reach"`
	Stop       []float64 `json:"stop"`
	Unmeasured bool      `json:"unmeasured,omitempty"`
	Work       float64   `json:"work,omitempty"`
	Steady     bool      `json:"steady,omitempty"`
	Grows      bool      `json:"grows,omitempty"`
}

const (
	savedDigits = 6
	// Bounds of values from outside. A curve that was made by with is far from them.
	maxRuns   = 1 << 30
	maxSpread = 1e6
	maxWeight = 1e12
	maxWork   = 1e18
	// wholeError is the largest deviation of the whole from 1, and of x from its range, by rounding.
	wholeError = 1e-3
)

// Values returns the contents of the curve.
func (c *Curve) Values() Values {
	return Values{Runs: c.runs, X: rounded(c.x), First: c.first, C: roundedAll(&c.c), B: roundedAll(&c.b), Spread: roundedAll(&c.spread),
		Weight: roundedAll(&c.weight), Reach: roundedAll(&c.reach), Stop: roundedAll(&c.stop), Unmeasured: c.unmeasured, Work: rounded(c.work), Steady: c.steady, Grows: c.grows}
}

// rounded returns a value with savedDigits digits.
func rounded(x float64) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', savedDigits, 64), 64) // its own text is valid
	return y
}

func roundedAll(values *[points + 1]float64) []float64 {
	all := make([]float64, 0, points+1)
	for _, v := range values {
		all = append(all, rounded(v))
	}
	return all
}

// NewEntry returns the entry of a kind with the contents. It fails if no curve has such contents.
func NewEntry(k Kind, v Values) (Entry, error) {
	for _, text := range []string{k.Framework, k.User, k.Name} {
		if len(text) > maxWord || !utf8.ValidString(text) {
			return Entry{}, fmt.Errorf("a text of the kind must be at most %d bytes of UTF-8", maxWord)
		}
	}
	if k.Framework == "" || k.Name == "" {
		return Entry{}, errors.New("the kind has no framework or no name")
	}
	c := &Curve{runs: v.Runs, x: v.X, first: v.First, unmeasured: v.Unmeasured, work: v.Work, steady: v.Steady, grows: v.Grows}
	for _, one := range []struct {
		name string
		from []float64
		to   *[points + 1]float64
		most float64
	}{{"c", v.C, &c.c, 1 + wholeError}, {"b", v.B, &c.b, 1 + wholeError}, {"spread", v.Spread, &c.spread, maxSpread}, {"weight", v.Weight, &c.weight, maxWeight},
		{"reach", v.Reach, &c.reach, 1}, {"stop", v.Stop, &c.stop, 1}} {
		if len(one.from) != points+1 {
			return Entry{}, fmt.Errorf("%s has %d values instead of %d", one.name, len(one.from), points+1)
		}
		for k, value := range one.from {
			if !(value >= 0 && value <= one.most) {
				return Entry{}, fmt.Errorf("%s: %v at %d of %d is not in its range, 0 to %v", one.name, value, k, points, one.most)
			}
			one.to[k] = value
		}
	}
	return Entry{k, c}, c.check()
}

// check returns an error for a curve from outside that no run could have made.
func (c *Curve) check() error {
	switch {
	case c.runs < 1 || c.runs > maxRuns:
		return fmt.Errorf("%d runs: 1 to %d are possible", c.runs, maxRuns)
	case !(c.x >= 1-wholeError && c.x <= (1+wholeError)/MinShare):
		return fmt.Errorf("x is %v: 1 to %v are possible", c.x, 1/MinShare)
	case c.first < 0 || c.first > points:
		return fmt.Errorf("the first point is %d: 0 to %d are possible", c.first, points)
	case !(math.Abs(c.rest(0)-1) <= wholeError) || c.rest(points) != 0:
		return fmt.Errorf("the whole is %v and the rest at the end %v, instead of 1 and 0", c.rest(0), c.rest(points))
	case !(c.work >= 0 && c.work <= maxWork):
		return fmt.Errorf("the work is %v: 0 to %v are possible", c.work, float64(maxWork))
	}
	for k := range points {
		if c.c[k] < c.c[k+1] || c.b[k] < c.b[k+1] {
			return fmt.Errorf("what remains rises at %d of %d", k, points)
		}
	}
	for k := c.first; k <= points; k++ {
		if c.weight[k] == 0 {
			return fmt.Errorf("the weight at %d of %d is 0", k, points)
		}
	}
	return nil
}
