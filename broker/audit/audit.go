// Package audit keeps the broker's audit log: who has changed or read what, from where, and what was refused. The log is a
// file of JSON lines. Records are only appended.
//
// A change has two records, which have the same id: one that is on disk before the change is made, and one with the
// outcome. So a broker that is killed in between leaves a trace. Reads and refused calls may come many times a second.
// Equal ones are recorded at once the first time, and then once a minute with their number.
//
// The file is opened for each record. So a program such as logrotate can rename it at any time to bound its size.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// interval is the time between two records about equal calls.
	interval = time.Minute
	// maxKinds is the maximum number of kinds of calls that are counted. Further ones are counted together.
	maxKinds = 1024
	// maxText is the maximum length of one text of a record, in bytes.
	maxText = 2048
)

// Outcomes.
const (
	Begun   = "begun"   // a change is about to be made
	Done    = "done"    // a change has been made, or a question answered
	Refused = "refused" // the caller may not do this
	Failed  = "failed"
)

// Record is a line of the log.
type Record struct {
	Time    time.Time `json:"time"`
	Broker  string    `json:"broker"`
	ID      string    `json:"id,omitempty"` // the same for the records of one change
	Who     string    `json:"who"`          // the name of the certificate or of the local user
	By      string    `json:"by"`           // how that is known: certificate, user or file
	Role    string    `json:"role,omitempty"`
	From    string    `json:"from"` // address
	Call    string    `json:"call"`
	What    string    `json:"what,omitempty"` // the change
	Outcome string    `json:"outcome"`
	Why     string    `json:"why,omitempty"`     // the reason for a refusal or a failure
	Version uint64    `json:"version,omitempty"` // of the policy, after a change
	Count   int       `json:"count,omitempty"`   // equal calls since the last record about them; 0: this one
}

// kind is what equal calls have in common.
type kind struct{ who, from, call, outcome string }

// Log is an audit log. Its methods may be called by several goroutines.
type Log struct {
	file   string // empty: records go to log
	broker string
	log    *slog.Logger
	now    func() time.Time
	most   int // kinds

	mu    sync.Mutex
	kinds map[kind]*counted
}

type counted struct {
	last  Record
	at    time.Time // of the last record
	since int       // calls since then
}

// Open returns the log in a file, which it creates if there is none. Without a file, records of changes and refusals go to
// the program's log. broker is the name of this broker.
func Open(file, broker string, log *slog.Logger) (*Log, error) {
	l := &Log{file: file, broker: broker, log: log, now: time.Now, most: maxKinds, kinds: map[kind]*counted{}}
	if file == "" {
		return l, nil
	}
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	return l, f.Close()
}

func (l *Log) open() (*os.File, error) {
	f, err := os.OpenFile(l.file, os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		if f, err = os.OpenFile(l.file, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600); err == nil {
			err = syncDir(filepath.Dir(l.file))
		}
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("audit log: %s is not a regular file", l.file)
	}
	return f, nil
}

// syncDir makes a new file's name survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Write adds a record. When it returns nil, the record is on disk.
func (l *Log) Write(r Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(r)
}

// write adds a record. l.mu is held.
func (l *Log) write(r Record) error {
	r.Time, r.Broker = l.now().UTC(), l.broker
	for _, text := range []*string{&r.Who, &r.What, &r.Why} {
		*text = (*text)[:min(len(*text), maxText)]
	}
	if l.file == "" {
		l.log.Info("audit", "who", r.Who, "by", r.By, "role", r.Role, "from", r.From, "call", r.Call, "what", r.What, "outcome", r.Outcome, "why", r.Why, "version", r.Version, "count", r.Count)
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	f, err := l.open()
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if torn(f) {
		line = append([]byte{'\n'}, line...)
	}
	_, err = f.Write(line)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// torn reports whether the last line is incomplete: the disk was full, or the machine stopped.
func torn(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Note adds a record about a call that changes nothing. Equal calls within interval are counted. An error is logged.
func (l *Log) Note(r Record) {
	if l.file == "" && r.Outcome == Done && !l.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.sweep(now)
	at := kind{r.Who, r.From, r.Call, r.Outcome}
	if c := l.kinds[at]; c != nil {
		c.since++
		return
	}
	if len(l.kinds) >= l.most {
		r.Who, r.From, r.What, r.Why = "others", "", "", fmt.Sprintf("more than %d kinds of calls in %v", l.most, interval)
		if at = (kind{r.Who, r.From, r.Call, r.Outcome}); l.kinds[at] != nil {
			l.kinds[at].since++
			return
		}
	}
	l.kinds[at] = &counted{last: r, at: now}
	l.noted(r)
}

// sweep writes the records of counted calls that are due, and forgets kinds without calls. l.mu is held.
func (l *Log) sweep(now time.Time) {
	for at, c := range l.kinds {
		if now.Sub(c.at) < interval {
			continue
		}
		if c.since == 0 {
			delete(l.kinds, at)
			continue
		}
		c.last.Count, c.since, c.at = c.since, 0, now
		l.noted(c.last)
	}
}

func (l *Log) noted(r Record) {
	if err := l.write(r); err != nil {
		l.log.Error("a call is not in the audit log", "call", r.Call, "who", r.Who, "outcome", cmp.Or(r.Outcome, Done), "error", err)
	}
}

// Sweep writes the records of counted calls that are due. The broker calls it from time to time.
func (l *Log) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(l.now())
}
