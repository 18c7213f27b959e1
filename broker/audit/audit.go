// Package audit keeps the broker's audit log. Each record names the user, the user's address, the call and its outcome;
// refused calls have records, too. The log is a file of JSON lines. Records are only appended.
//
// A change has two records, which have the same id: one that is on disk before the change is made, and one with the
// outcome. So a broker that is killed in between leaves a trace. Reads and refused calls may come many times a second.
// The first of several equal calls is recorded at once. The others are counted, and their number is recorded once a minute.
//
// The file is opened for each record. So a program such as logrotate can rename it at any time to bound its size. Its disk may
// hang. Then a record fails after a bounded time, and further ones at once, so that the broker continues.
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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// interval is the time between two records about equal calls.
	interval = time.Minute
	// maxKinds is the maximum number of kinds of calls that are counted. Further ones are counted together.
	maxKinds = 1024
	// patience is the maximum time of one record. A disk that is only busy needs a part of it.
	patience = 2 * time.Second
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
	wait   time.Duration
	add    func(line []byte) error // makes a line the file's last one

	writing chan struct{} // holds one element while add runs
	began   atomic.Int64  // when add was called, Unix nanoseconds; 0: it does not run

	mu    sync.Mutex
	kinds map[kind]*counted
}

var errHangs = errors.New("audit log: the disk of its file does not answer")

type counted struct {
	last  Record
	at    time.Time // of the last record
	since int       // calls since then
}

// Open returns the log in a file, which it creates if there is none. Without a file, records of changes and refusals go to
// the program's log. broker is the name of this broker.
func Open(file, broker string, log *slog.Logger) (*Log, error) {
	l := &Log{file: file, broker: broker, log: log, now: time.Now, most: maxKinds, wait: patience, writing: make(chan struct{}, 1), kinds: map[kind]*counted{}}
	l.add = l.append
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

// Write adds a record. When it returns nil, the record is on disk. It waits at most for some seconds.
func (l *Log) Write(r Record) error {
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
	if began := l.began.Load(); began != 0 && time.Since(time.Unix(0, began)) > l.wait {
		return errHangs
	}
	late := time.NewTimer(l.wait)
	defer late.Stop()
	select {
	case l.writing <- struct{}{}:
	case <-late.C:
		return errHangs
	}
	l.began.Store(time.Now().UnixNano())
	done := make(chan error, 1)
	go func() {
		err := l.add(append(line, '\n'))
		l.began.Store(0)
		<-l.writing
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errHangs
	}
}

func (l *Log) append(line []byte) error {
	f, err := l.open()
	if err != nil {
		return err
	}
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
	for _, r := range l.count(r) {
		l.noted(r)
	}
}

// count counts a call, and returns the records that are due.
func (l *Log) count(r Record) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	due := l.due(now)
	at := kind{r.Who, r.From, r.Call, r.Outcome}
	if c := l.kinds[at]; c != nil {
		c.since++
		return due
	}
	if len(l.kinds) >= l.most {
		r.Who, r.From, r.What, r.Why = "others", "", "", fmt.Sprintf("more than %d kinds of calls in %v", l.most, interval)
		if at = (kind{r.Who, r.From, r.Call, r.Outcome}); l.kinds[at] != nil {
			l.kinds[at].since++
			return due
		}
	}
	l.kinds[at] = &counted{last: r, at: now}
	return append(due, r)
}

// due returns the records of counted calls that are due, and forgets kinds without calls. l.mu is held.
func (l *Log) due(now time.Time) (due []Record) {
	for at, c := range l.kinds {
		if now.Sub(c.at) < interval {
			continue
		}
		if c.since == 0 {
			delete(l.kinds, at)
			continue
		}
		c.last.Count, c.since, c.at = c.since, 0, now
		due = append(due, c.last)
	}
	return due
}

func (l *Log) noted(r Record) {
	if err := l.Write(r); err != nil {
		l.log.Error("a call is not in the audit log", "call", r.Call, "who", r.Who, "outcome", cmp.Or(r.Outcome, Done), "count", r.Count, "error", err)
	}
}

// Sweep writes the records of counted calls that are due. The broker calls it from time to time.
func (l *Log) Sweep() {
	l.mu.Lock()
	due := l.due(l.now())
	l.mu.Unlock()
	for _, r := range due {
		l.noted(r)
	}
}
