package coord

import "time"

// Arrears are two accounts of an application: what it lacks of a rate for the whole cluster, and what it has had of the rate in advance.
// Parts of a rate follow moving tasks only with the exchange of messages, so for a moment, parts are at nodes without tasks. The
// application gets back what it lacks: while it is behind, its parts are larger by a small part of the rate (makeUpReserve, makeUpLimit). It
// pays back in the same way what it has had beyond a limit. Both accounts are bounded, and so is what they give. The zero value has empty
// accounts, whose bounds must be set.
type Arrears struct {
	// Most bounds what can be lacking, and Advance what can be had in advance, in time of the whole rate.
	Most, Advance time.Duration
	// Forgotten is the part of the rate by which what was had in advance decreases.
	Forgotten float64
	// Signed means that what was had in advance is not lacking later.
	Signed bool

	lacks   float64 // bytes, 0 or above
	advance float64 // bytes, 0 or above
	behind  bool
	ahead   bool
	noted   time.Duration
	started bool
}

const (
	// An application gets back what it lacks of a guaranteed rate with a tenth of the rate: after 3 s with half of the rate, this
	// takes 15 s. With more than a tenth, applications without a guaranteed rate would lose too much.
	makeUpReserve = 0.1
	mostLacking   = 3 * time.Second
	// A node where an application has come gets a part of the guaranteed rate before others have given it back. The application
	// can have 1 s of the rate in advance because of this. A twentieth of the rate is forgotten, so that an application whose
	// tasks move once per minute has the whole advance each time.
	mostAdvance = time.Second
	forgotten   = 0.05
	// A limit must not be missed by more than 3 % over 30 s, so the parts add up to 2 % more or less. More would be a burst. An
	// application can pass its limit at a node where it has come, until the node's first answer; 1 s of the limit is paid back within
	// 50 s.
	makeUpLimit      = 0.02
	mostLackingLimit = time.Second
	mostAdvanceLimit = time.Second
	// An application is behind when it lacks beginsAt of its rate, until it lacks nothing, and ahead likewise. In this way the parts do not
	// change in every exchange.
	beginsAt = 100 * time.Millisecond
	// After a longer time between two calls of Note, the rates say nothing about this time.
	longestNote = 5 * time.Second
)

func reserveArrears() Arrears {
	return Arrears{Most: mostLacking, Advance: mostAdvance, Forgotten: forgotten}
}

func limitArrears() Arrears {
	return Arrears{Most: mostLackingLimit, Advance: mostAdvanceLimit, Signed: true}
}

// Note records the rate that the application should have, and the rate that it had, in bytes per second, since the last call. hungry
// reports whether it could have moved more; otherwise it lacks nothing more.
func (a *Arrears) Note(now time.Duration, rate, had int64, hungry bool) {
	passed := now - a.noted
	if !a.started || passed < 0 || passed > longestNote {
		passed = 0
	}
	a.noted, a.started = now, true
	of := func(d time.Duration) float64 { return d.Seconds() * float64(rate) }
	more := float64(had-rate) * passed.Seconds() // moved beyond the rate
	before := a.advance
	if more > 0 {
		made := min(a.lacks, more) // made up for, which is nothing in advance
		a.lacks -= made
		a.advance += more - made
	} else {
		a.advance = max(a.advance+more, 0)
		if hungry && a.Signed {
			a.lacks += max(-more-before, 0)
		} else if hungry {
			a.lacks -= more
		}
	}
	a.lacks = min(a.lacks, of(a.Most))
	a.advance = min(max(a.advance-a.Forgotten*of(passed), 0), of(a.Advance))
	a.behind = a.lacks > 0 && (a.behind || a.lacks > of(beginsAt))
	a.ahead = a.advance > 0 && (a.ahead || a.advance > of(beginsAt))
}

// Behind reports whether the application is to get back what it lacks.
func (a *Arrears) Behind() bool { return a.behind }

// Ahead reports whether the application is to pay back what it has had in advance.
func (a *Arrears) Ahead() bool { return a.ahead }

// Exhausted reports whether the application has had as much in advance as it can have of the rate.
func (a *Arrears) Exhausted(rate int64) bool {
	return a.advance >= a.Advance.Seconds()*float64(rate)
}
