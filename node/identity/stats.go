package identity

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"penstock/node/loglimit"
)

// Stats counts the results of the Checker since its start. In mode trust nothing is counted.
type Stats struct {
	Hits        atomic.Int64 // claims answered from the cache
	Overflows   atomic.Int64 // claims left unknown because a queue was full
	Lookups     atomic.Int64
	Slow        atomic.Int64 // lookups that exceeded their time
	Nanoseconds atomic.Int64 // spent in lookups, on this machine
	Remote      RemoteStats

	verdicts [states][evidences]atomic.Int64
}

func (s *Stats) count(v Verdict) { s.verdicts[v.State][v.Evidence].Add(1) }

// Verdicts calls f with the number of claims for each outcome and kind of evidence, always in the
// same order, without zeros.
func (s *Stats) Verdicts(f func(state State, evidence Evidence, claims int64)) {
	for state := range s.verdicts {
		for evidence := range s.verdicts[state] {
			if n := s.verdicts[state][evidence].Load(); n > 0 {
				f(State(state), Evidence(evidence), n)
			}
		}
	}
}

// logBurst is the maximum burst of log lines about refuted claims of processes of the same flow.
// A client that forges a name does so with each operation.
const logBurst = 10

type limitedLog struct{ *loglimit.Limiter }

func (l limitedLog) refuted(flow string, v Verdict, key string, peer any) {
	l.Some(logBurst, slog.LevelWarn, "claim refuted", v.Flow, "claimed", flow, key, peer, "is", v.Flow, "evidence", v.Evidence.String(),
		"detail", v.Detail)
}

// rights logs, once each, which files the daemon has no permission to read. Nothing else shows
// this, because Unknown is not an error.
type rights struct {
	log              *slog.Logger
	processes, files sync.Once
}

func (r *rights) process(err error) {
	r.say(&r.processes, err, "no permission to examine other users' processes: the applications of their connections stay unknown; "+
		"run the daemon as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
}

func (r *rights) records(err error) {
	r.say(&r.files, err, "no permission to read the NodeManager's records: it stays unknown which processes are in no container; "+
		"run the daemon as root or with CAP_DAC_READ_SEARCH")
}

func (r *rights) say(once *sync.Once, err error, what string) {
	if errors.Is(err, os.ErrPermission) {
		once.Do(func() { r.log.Warn(what, "error", err) })
	}
}

// RemoteStats counts the results of questions to other nodes.
type RemoteStats struct {
	Confirmed  atomic.Int64 // claims that the other node's evidence confirms, or corrects
	Refuted    atomic.Int64
	Undecided  atomic.Int64 // the other node answered, but its evidence decides nothing
	Unanswered atomic.Int64 // no node there, or no answer in time
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
