package limit_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/limit"
)

// model is the bucket in exact numbers, written from its description. It has a debt in bytes, which
// the rate pays off. Credit lets the debt fall below zero.
type model struct {
	cfg  limit.Config
	at   time.Duration
	debt *big.Rat // bytes
}

func seconds(d time.Duration) *big.Rat { return big.NewRat(int64(d), int64(time.Second)) }

func (m *model) worth(d time.Duration) *big.Rat {
	return new(big.Rat).Mul(seconds(d), new(big.Rat).SetInt64(m.cfg.Rate))
}

// to advances the model's clock.
func (m *model) to(now time.Duration) {
	m.debt.Sub(m.debt, m.worth(now-m.at))
	m.at = now
}

func (m *model) add(bytes int64) {
	if least := new(big.Rat).Neg(m.worth(m.cfg.Credit)); m.debt.Cmp(least) < 0 {
		m.debt = least
	}
	m.debt.Add(m.debt, new(big.Rat).SetInt64(bytes))
}

func (m *model) charge(bytes int64) {
	if bytes < 0 {
		m.debt.Add(m.debt, new(big.Rat).SetInt64(bytes))
		return
	}
	most := m.worth(m.cfg.Debt)
	if m.debt.Cmp(most) > 0 {
		most = new(big.Rat).Set(m.debt)
	}
	m.add(bytes)
	if m.debt.Cmp(most) > 0 {
		m.debt = most
	}
}

// takeCredit takes bytes as far as there is no debt.
func (m *model) takeCredit(bytes int64) {
	if m.debt.Sign() > 0 {
		return
	}
	if m.add(bytes); m.debt.Sign() > 0 {
		m.debt = new(big.Rat)
	}
}

// rate changes the rate: a debt keeps its bytes, and unused time keeps its length.
func (m *model) rate(rate int64) {
	if m.debt.Sign() < 0 {
		m.debt.Mul(m.debt, big.NewRat(rate, m.cfg.Rate))
	}
	m.cfg.Rate = rate
}

func config(t *rapid.T) limit.Config {
	times := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, int(2*time.Second)), rapid.Just(int(limit.MaxTime)))
	return limit.Config{
		Rate:   rapid.OneOf(rapid.Int64Range(limit.MinRate, 1<<28), rapid.Just(int64(limit.MaxRate)), rapid.Just(int64(limit.MinRate))).Draw(t, "rate"),
		Credit: time.Duration(times.Draw(t, "credit")),
		Debt:   time.Duration(times.Draw(t, "debt")),
	}
}

func newBucket(t *rapid.T, cfg limit.Config) *limit.Bucket {
	b, err := limit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSameDecisionsAsTheExactModel compares the bucket with the exact model, to the nanosecond.
func TestSameDecisionsAsTheExactModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(t)
		b := newBucket(t, cfg)
		m := &model{cfg: cfg, debt: new(big.Rat).Neg(new(big.Rat).SetInt64(1 << 62))}
		bytes := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, 64<<20))
		step := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, int(50*time.Millisecond)), rapid.IntRange(0, int(20*time.Second)))
		now := time.Duration(0)
		slack := big.NewRat(0, 1) // SetRate and a clipped charge round by under a nanosecond
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(step.Draw(t, "pass"))
			m.to(now)
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				n := bytes.Draw(t, "charged")
				b.Charge(now, n)
				m.charge(n)
				slack.Add(slack, m.worth(2))
			case 1:
				n := bytes.Draw(t, "given back")
				b.Charge(now, -n)
				m.charge(-n)
			case 2:
				rate := rapid.Int64Range(limit.MinRate, 1<<30).Draw(t, "new rate")
				if err := b.SetRate(now, rate); err != nil {
					t.Fatal(err)
				}
				slack.Add(slack, m.worth(2))
				if rate > m.cfg.Rate {
					slack.Mul(slack, big.NewRat(rate, m.cfg.Rate)) // the same error in time is more bytes at a higher rate
				}
				m.rate(rate)
				slack.Add(slack, m.worth(2))
				slack.Add(slack, new(big.Rat).SetInt64(1))
			case 3:
				n := bytes.Draw(t, "added")
				b.Add(now, n)
				m.add(n)
			case 4:
				n := bytes.Draw(t, "of the credit")
				b.TakeCredit(now, n)
				m.takeCredit(n)
				slack.Add(slack, m.worth(2)) // a part of a nanosecond of debt counts as debt
			case 5:
				exact := new(big.Rat).Add(seconds(now), new(big.Rat).Quo(m.debt, m.worth(time.Second)))
				if least := seconds(now - m.cfg.Credit); exact.Cmp(least) < 0 {
					exact = least
				}
				off := new(big.Rat).Sub(seconds(b.PaidUntil(now)), exact)
				tolerance := new(big.Rat).Quo(slack, m.worth(time.Second))
				tolerance.Add(tolerance, seconds(1))
				if off.Abs(off).Cmp(tolerance) > 0 {
					t.Fatalf("the bucket is paid until %v, the model until %s s", b.PaidUntil(now), exact.FloatString(12))
				}
			default:
				wait := b.Wait(now)
				exact := new(big.Rat).Quo(m.debt, m.worth(time.Second)) // seconds
				off := new(big.Rat).Sub(seconds(wait), exact)
				tolerance := new(big.Rat).Quo(slack, m.worth(time.Second))
				tolerance.Add(tolerance, seconds(1))
				if exact.Sign() < 0 {
					exact.SetInt64(0)
					off.Set(seconds(wait))
				}
				if off.Abs(off).Cmp(tolerance) > 0 {
					t.Fatalf("the bucket waits %v, the model %s s", wait, exact.FloatString(12))
				}
				n := bytes.Draw(t, "taken")
				if b.Take(now, n) != wait {
					t.Fatal("Take and Wait differ")
				}
				if wait == 0 {
					m.add(n)
				}
			}
		}
	})
}

// TestNeverMoreThanTheRate requests bytes at arbitrary times. Between any two moments, the bucket
// lets no more pass than the rate, the credit and one request allow.
func TestNeverMoreThanTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(t)
		cfg.Rate = min(cfg.Rate, 1<<30)
		b := newBucket(t, cfg)
		type taken struct {
			at    time.Duration
			bytes int64
		}
		var log []taken
		now, largest := time.Duration(0), int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now += time.Duration(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, int(100*time.Millisecond)), rapid.Just(int(5*time.Second))).Draw(t, "pass"))
			n := rapid.Int64Range(1, 4<<20).Draw(t, "bytes")
			if b.Take(now, n) == 0 {
				log = append(log, taken{now, n})
				largest = max(largest, n)
			}
		}
		for i := range log {
			sum := int64(0)
			for j := i; j < len(log); j++ {
				sum += log[j].bytes
				allowed := float64(cfg.Rate)*(log[j].at-log[i].at+cfg.Credit).Seconds() + float64(largest)
				if float64(sum) > allowed*(1+1e-9)+1 {
					t.Fatalf("%d bytes between %v and %v, want at most %.0f", sum, log[i].at, log[j].at, allowed)
				}
			}
		}
	})
}

// TestTheRateIsReached checks that a caller that asks each time it should gets the whole rate, even
// if it is late by less than the credit.
func TestTheRateIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(t)
		cfg.Rate = rapid.Int64Range(limit.MinRate, 1<<32).Draw(t, "reached rate")
		b := newBucket(t, cfg)
		late := rapid.IntRange(0, max(0, int(min(cfg.Credit, time.Second)))).Draw(t, "late")
		now, sum := time.Duration(0), int64(0)
		for range 200 {
			if wait := b.Wait(now); wait > 0 {
				now += wait + time.Duration(rapid.IntRange(0, late).Draw(t, "this late"))
			}
			n := rapid.Int64Range(1<<10, 4<<20).Draw(t, "bytes")
			if wait := b.Take(now, n); wait > 0 {
				t.Fatalf("the caller came at the required time %v, and has to wait %v more", now, wait)
			}
			sum += n
		}
		// sum has passed by now. Each wait loses up to a nanosecond.
		if due := float64(cfg.Rate) * (now.Seconds() - 200e-9 - time.Duration(late).Seconds()); float64(sum) < due*(1-1e-9) {
			t.Fatalf("%d bytes in %v at %d bytes/s", sum, now, cfg.Rate)
		}
	})
}

func TestBoundsAtTheirEdges(t *testing.T) {
	for _, c := range []struct {
		cfg  limit.Config
		good bool
	}{
		{limit.Config{Rate: limit.MinRate}, true},
		{limit.Config{Rate: limit.MinRate - 1}, false},
		{limit.Config{Rate: limit.MaxRate}, true},
		{limit.Config{Rate: limit.MaxRate + 1}, false},
		{limit.Config{Rate: 1 << 20, Credit: limit.MaxTime, Debt: limit.MaxTime}, true},
		{limit.Config{Rate: 1 << 20, Credit: limit.MaxTime + 1}, false},
		{limit.Config{Rate: 1 << 20, Debt: limit.MaxTime + 1}, false},
		{limit.Config{Rate: 1 << 20, Credit: -1}, false},
		{limit.Config{Rate: 1 << 20, Debt: -1}, false},
	} {
		b, err := limit.New(c.cfg)
		if (err == nil) != c.good {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		if err != nil {
			continue
		}
		// The largest numbers neither overflow nor block the bucket.
		now := 10 * time.Minute
		b.Charge(now, math.MaxInt64)
		if wait := b.Wait(now); wait != c.cfg.Debt {
			t.Errorf("%+v: in debt for %v", c.cfg, wait)
		}
		now += c.cfg.Debt
		if wait := b.Take(now, math.MaxInt64); wait != 0 {
			t.Errorf("%+v: not free after the end of its debt: %v", c.cfg, wait)
		}
		if b.Wait(now) <= 0 {
			t.Errorf("%+v: the largest request took no time", c.cfg)
		}
		if err := b.SetRate(now, limit.MinRate); err != nil || b.Wait(now) <= 0 {
			t.Errorf("%+v: after a change of rate: %v, wait %v", c.cfg, err, b.Wait(now))
		}
		b.Charge(now, math.MinInt64)
		b.Charge(now, math.MinInt64)
		if b.Wait(now) != 0 || b.Take(now, 1) != 0 {
			t.Errorf("%+v: all bytes are returned, and the bucket still waits %v", c.cfg, b.Wait(now))
		}
	}
}
