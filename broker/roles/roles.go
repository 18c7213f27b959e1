// Package roles reads the broker's file of roles, which states what each operator may do. Without such a file, each
// operator may do everything. A changed file is in force at the next call; one with mistakes never replaces a good one.
package roles

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"penstock/settings"
)

// Bounds of the file.
const (
	maxBytes = 1 << 20
	maxNames = 10_000
)

// Role is what somebody may do. Each role includes those before it.
type Role int

// The roles.
const (
	None               Role = iota
	Viewer                  // reads the policy, its history, and the state of nodes and applications
	QueueAdministrator      // sets the weights of applications in some queues
	Operator                // changes the policy, uses the kill switch
)

func (r Role) String() string {
	return [...]string{"none", "viewer", "queue administrator", "operator"}[r]
}

// Who is somebody who makes a call.
type Who struct {
	Name string // of the certificate, or of the local user; empty: not known
	UID  string // of the local user; empty: somebody with a certificate, or not known
}

// Given is what somebody has: a role and, for a queue administrator, queues.
type Given struct {
	Role   Role
	Queues []string
}

// Administers reports whether a queue is one of the queues, or below one of them.
func (g Given) Administers(queue string) bool {
	return slices.ContainsFunc(g.Queues, func(own string) bool {
		return queue == own || strings.HasPrefix(queue, own+".")
	})
}

// table is the content of the file.
type table struct {
	Viewers             []string        `yaml:"viewers" entry:"a viewer"`
	QueueAdministrators []administrator `yaml:"queue_administrators" entry:"a queue administrator"`
	Operators           []string        `yaml:"operators" entry:"an operator"`
}

type administrator struct {
	Name   string   `yaml:"name"`
	Queues []string `yaml:"queues" entry:"a queue"`
}

// uidPrefix begins an entry that names a local user by number.
const uidPrefix = "uid:"

// everybody is the entry for all whose name is known.
const everybody = "*"

// parse reads and checks the text of a file.
func parse(text []byte) (*table, error) {
	t := &table{}
	doc, err := settings.ParseDocument(text, "the file of roles", t)
	if err != nil {
		return nil, err
	}
	check := func(name string, path ...any) {
		number, uid := strings.CutPrefix(name, uidPrefix)
		_, wrong := strconv.ParseUint(number, 10, 32)
		switch {
		case doc.Wrong(path...):
		case name == "" || len(name) > 256:
			doc.Add("", fmt.Errorf("name %.40q: give the common name of a certificate, the name of a local user, uid:NUMBER or *", name), path...)
		case uid && wrong != nil:
			doc.Add("", fmt.Errorf("%.40q: give the number of a local user, such as uid:1000", name), path...)
		}
	}
	if n := len(t.Viewers) + len(t.QueueAdministrators) + len(t.Operators); n > maxNames {
		doc.Add("", fmt.Errorf("%d names: at most %d", n, maxNames))
	}
	for i, name := range t.Viewers {
		check(name, "viewers", i)
	}
	for i, name := range t.Operators {
		check(name, "operators", i)
	}
	for i, a := range t.QueueAdministrators {
		check(a.Name, "queue_administrators", i, "name")
		if len(a.Queues) == 0 || slices.Contains(a.Queues, "") {
			doc.Add("", fmt.Errorf("queues: give the paths of the queues, such as root.etl"), "queue_administrators", i, "queues")
		}
	}
	if len(t.Operators) == 0 {
		doc.Add("", fmt.Errorf("operators: name at least one; otherwise nobody can change the policy or use the kill switch"), "operators")
	}
	return t, doc.Err()
}

// of returns the largest role of somebody.
func (t *table) of(w Who) Given {
	is := func(name string) bool {
		if number, uid := strings.CutPrefix(name, uidPrefix); uid {
			return w.UID != "" && number == w.UID
		}
		return w.Name != "" && (name == everybody || name == w.Name)
	}
	if slices.ContainsFunc(t.Operators, is) {
		return Given{Role: Operator}
	}
	var queues []string
	for _, a := range t.QueueAdministrators {
		if is(a.Name) {
			queues = append(queues, a.Queues...)
		}
	}
	switch {
	case len(queues) > 0:
		return Given{QueueAdministrator, queues}
	case slices.ContainsFunc(t.Viewers, is):
		return Given{Role: Viewer}
	}
	return Given{}
}

// File is a file of roles. Its methods may be called by several goroutines.
type File struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	seen  string // fingerprint when it was last read
	table *table
}

// Open reads a file.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log, seen: settings.Fingerprint(path)}
	var err error
	f.table, err = load(path)
	return f, err
}

func load(path string) (*table, error) {
	text, err := settings.Read(path, maxBytes)
	if err != nil {
		return nil, err
	}
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Of returns somebody's role, by the file's present content. Without a file, everybody is an operator.
func (f *File) Of(w Who) Given {
	if f == nil {
		return Given{Role: Operator}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := settings.Fingerprint(f.path); now != f.seen {
		f.seen = now
		if t, err := load(f.path); err != nil {
			f.log.Error("the changed file of roles is refused; the roles read before stay in force", "error", err)
		} else {
			f.table = t
			f.log.Info("roles in force", "file", f.path, "operators", len(t.Operators))
		}
	}
	return f.table.of(w)
}
