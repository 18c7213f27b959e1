package coordination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"penstock/lab/contenders"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/report"
	"penstock/lab/judge"
)

// Limits for the effect of a broker's kill on HDFS's clients.
const (
	// MaxPause is the longest time for which a task may make no step. It is this long because a
	// task also waits for its share: a wait of 4.4 s was measured without any kill.
	MaxPause = 15 * time.Second
	// MaxMisplaced is the largest misallocated part of the service, over all kills.
	MaxMisplaced = 0.03

	// MaxKills bounds a campaign.
	MaxKills = 100_000

	killsOfRound = 5 // after each round, the written files are read again
	settled      = 10 * time.Second
)

// Kills holds the results of a round of kills under load.
type Kills struct {
	Kills   int     `json:"kills"`
	Outcome Outcome `json:"outcome"`
	Files   int     `json:"files"` // written during the kills and read again
	PauseMS int64   `json:"pause_ms"`
}

// Wrong returns an error that lists the exceeded limits, or nil.
func (k Kills) Wrong() error {
	var errs []error
	if k.PauseMS > MaxPause.Milliseconds() {
		errs = append(errs, fmt.Errorf("a task made no step for %d ms", k.PauseMS))
	}
	if k.Outcome.Misplaced > MaxMisplaced {
		errs = append(errs, fmt.Errorf("%.1f %% of the service was misplaced", 100*k.Outcome.Misplaced))
	}
	return errors.Join(errs...)
}

// moment draws the time from one kill to the next, and the length of the broker's outage.
func moment(random *rand.Rand) (after, away time.Duration) {
	after = 3*time.Second + time.Duration(random.Int64N(int64(5*time.Second)))
	return after, time.Duration(random.Int64N(int64(2 * time.Second)))
}

// KillBroker kills the broker (kill -9) at random moments, and starts a broker again after an
// outage of up to two seconds. Meanwhile load must be running, and the contest's policy must be in
// force.
func (m *Machine) KillBroker(ctx context.Context, applications []Application, load *contenders.Load, kills int, random *rand.Rand) (k Kills, err error) {
	window := judge.Window{From: disk.Monotonic()}
	for k.Kills < kills {
		after, away := moment(random)
		if err := experiment.Pause(ctx, after); err != nil {
			return k, err
		}
		if err := m.Broker.Kill(); err != nil {
			return k, err
		}
		if err := experiment.Pause(ctx, away); err != nil {
			return k, err
		}
		if err := m.StartBroker(ctx); err != nil {
			return k, err
		}
		k.Kills++
	}
	if err := experiment.Pause(ctx, 3*time.Second); err != nil {
		return k, err
	}
	window.To = disk.Monotonic()
	k.PauseMS = load.Longest().Milliseconds()
	k.Outcome, err = m.Judge(ctx, applications, window)
	return k, err
}

// Soak is a campaign of kills of the broker.
type Soak struct {
	Place
	Seed   uint64
	Kills  int    // 1..MaxKills
	Resume string // the journal of the rounds that were good; "" keeps rounds in memory only
}

// soakSetup is everything that may change a campaign's results.
type soakSetup struct {
	Contest []Application `json:"contest"`
	Seed    uint64        `json:"seed"`
	Kills   int           `json:"kills"`
}

// SoakResult is a campaign's result, in the form of --json.
type SoakResult struct {
	Seed   uint64         `json:"seed"`
	Rounds []Kills        `json:"rounds"`
	Claims []claims.Claim `json:"claims"`

	setup soakSetup
}

// Perform starts a machine and kills its broker, in the rounds that the journal lacks. It ends
// after the first round that exceeds a limit (Kills.Wrong) or fails.
func (s Soak) Perform(ctx context.Context) (res SoakResult, err error) {
	res = SoakResult{Seed: s.Seed, setup: soakSetup{Uneven, s.Seed, s.Kills}}
	if s.Kills < 1 || s.Kills > MaxKills {
		return res, fmt.Errorf("%d kills: want 1 to %d", s.Kills, MaxKills)
	}
	res.Rounds, err = experiment.Rounds[soakSetup, Kills]{
		Name: "coordination", Setup: res.setup, Count: (s.Kills + killsOfRound - 1) / killsOfRound, Resume: s.Resume,
		RunDir: s.Dir, Say: s.Progress,
		Start: func(ctx context.Context, dir string) (func(context.Context, int) (Kills, error), func() error, error) {
			m, err := s.start(ctx, dir, Uneven)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, n int) (Kills, error) { return s.round(ctx, m, n) }, m.Down, nil
		},
	}.Perform(ctx)
	return res, err
}

// round performs round n of the campaign, counted from 0.
func (s Soak) round(ctx context.Context, m *Machine, n int) (Kills, error) {
	random, done := rand.New(rand.NewPCG(s.Seed, 0)), n*killsOfRound
	for range done { // so that a continued campaign draws the same moments
		moment(random)
	}
	k, err := s.kill(ctx, m, min(killsOfRound, s.Kills-done), random)
	if err != nil {
		return k, err
	}
	s.Progress("%d of %d kills: %.1f %% of the service misplaced, longest pause of a task %d ms, %d files right",
		done+k.Kills, s.Kills, 100*k.Outcome.Misplaced, k.PauseMS, k.Files)
	if err := k.Wrong(); err != nil {
		return k, fmt.Errorf("kills %d to %d of seed %d: %w", done+1, done+k.Kills, s.Seed, err)
	}
	return k, nil
}

// kill kills the broker a few times under load, and then reads the written files.
func (s Soak) kill(ctx context.Context, m *Machine, kills int, random *rand.Rand) (k Kills, err error) {
	load := m.Work(ctx, Uneven)
	stop := func() error { return errors.Join(m.Slow(false), load.Stop()) }
	defer func() {
		err = errors.Join(err, stop(), m.remove(ctx, Uneven))
	}()
	if err := m.Slow(true); err != nil {
		return k, err
	}
	if err := m.InForce(ctx, 0, true); err != nil {
		return k, err
	}
	if err := experiment.Pause(ctx, settled); err != nil {
		return k, err
	}
	if k, err = m.KillBroker(ctx, Uneven, load, kills, random); err != nil {
		return k, err
	}
	if err := stop(); err != nil {
		return k, err
	}
	k.Files, err = load.Verify(ctx)
	return k, err
}

// WriteJSON writes the result.
func (r SoakResult) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// Report returns the HTML page.
func (r SoakResult) Report() report.Report {
	return report.Report{Headline: "Kills of the broker under load", Claims: r.claims(), Table: r.WriteTable, Setup: r.setup,
		About: "The broker is killed (kill -9) at random moments while three applications work on three DataNodes."}
}

// WriteTable writes the results of all rounds.
func (r SoakResult) WriteTable(w io.Writer) error {
	var kills, files int
	var worst float64
	var longest int64
	for _, k := range r.Rounds {
		kills, files = kills+k.Kills, files+k.Files
		worst, longest = max(worst, k.Outcome.Misplaced), max(longest, k.PauseMS)
	}
	_, err := fmt.Fprintf(w, "%d kills in %d rounds of seed %d: at most %.1f %% of the service misplaced in a round, longest pause of a task %d ms, %d files right\n",
		kills, len(r.Rounds), r.Seed, 100*worst, longest, files)
	return err
}
