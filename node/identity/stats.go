package identity

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"penstock/node/loglimit"
)

// Stats counts what the Checker did since it began. In mode trust nothing is counted.
type Stats struct {
	Hits        atomic.Int64 // claims answered from the cache
	Overflows   atomic.Int64 // claims left unknown for want of room
	Lookups     atomic.Int64
	Slow        atomic.Int64 // lookups that took longer than they may
	Nanoseconds atomic.Int64 // spent in lookups, on this machine
	Remote      RemoteStats

	verdicts [states][evidences]atomic.Int64
}

func (s *Stats) count(v Verdict) { s.verdicts[v.State][v.Evidence].Add(1) }

// Verdicts calls f for each outcome and kind of evidence with the claims that ended so,
// always in the same order, without those that are zero.
func (s *Stats) Verdicts(f func(state State, evidence Evidence, claims int64)) {
	for state := range s.verdicts {
		for evidence := range s.verdicts[state] {
			if n := s.verdicts[state][evidence].Load(); n > 0 {
				f(State(state), Evidence(evidence), n)
			}
		}
	}
}

// logBurst is how many lines there may be in a while about claims of the same flow's
// processes that are refuted. A client that forges does so with each operation.
const logBurst = 10

type limitedLog struct{ *loglimit.Limiter }

func (l limitedLog) refuted(flow string, v Verdict, key string, peer any) {
	l.Some(logBurst, slog.LevelWarn, "claim refuted", v.Flow, "claimed", flow, key, peer, "is", v.Flow, "evidence", v.Evidence.String(),
		"detail", v.Detail)
}

// rights says once each, loudly, what the daemon may not look at: nothing else tells, as
// Unknown is no error.
type rights struct {
	log              *slog.Logger
	processes, files sync.Once
}

func (r *rights) process(err error) {
	r.say(&r.processes, err, "other users' processes may not be looked into: whose their connections are stays unknown; "+
		"run the daemon as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
}

func (r *rights) records(err error) {
	r.say(&r.files, err, "the NodeManager's records may not be read: which processes are in no container stays unknown; "+
		"run the daemon as root or with CAP_DAC_READ_SEARCH")
}

func (r *rights) say(once *sync.Once, err error, what string) {
	if errors.Is(err, os.ErrPermission) {
		once.Do(func() { r.log.Warn(what, "error", err) })
	}
}

// RemoteStats counts what became of questions to other nodes.
type RemoteStats struct {
	Confirmed  atomic.Int64 // claims that the other node's evidence confirms, or corrects
	Refuted    atomic.Int64
	Undecided  atomic.Int64 // it answered, and knows nothing that decides
	Unanswered atomic.Int64 // no node is there, or it did not answer in time
}

func (r *RemoteStats) count(v Verdict, answered bool) {
	switch {
	case !answered:
		r.Unanswered.Add(1)
	case v.State == Refuted:
		r.Refuted.Add(1)
	case v.State == Unknown:
		r.Undecided.Add(1)
	default:
		r.Confirmed.Add(1)
	}
}
