package identity

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A NodeManager may run in its own pid namespace. The session numbers in its records are then
// different from those seen here. The kernel translates a session's number; the NodeManager's
// process shows which namespace to use. That process is identified by its main class and by its
// user, who must own the records: a process of that user can write records anyway.

// mainClass is the main class of a NodeManager, one of the arguments on its command line.
const mainClass = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

const maxManagers = 16

// Interval between searches for NodeManagers: while none is known, and otherwise.
const (
	lookSoon  = time.Second
	lookLater = 10 * time.Second
)

type manager struct {
	pid   int
	start uint64
	space string // "" if it is the namespace that we see
}

type managers struct {
	class  string // mainClass, except in tests
	known  []manager
	hidden bool // a NodeManager is in a namespace that we have no right to examine
	at     time.Time
}

func (m *managers) look(p proc, owners map[uint32]bool) {
	old := len(m.known)
	m.known = slices.DeleteFunc(m.known, func(k manager) bool {
		l, err := p.life(k.pid)
		return err != nil || l.start != k.start
	})
	age := time.Since(m.at)
	if age < lookSoon && len(m.known) == old || age < lookLater && len(m.known) == old && old > 0 {
		return
	}
	*m = managers{class: m.class, at: time.Now()}
	pids, err := p.pids()
	if err != nil {
		return
	}
	var st unix.Stat_t
	for _, pid := range pids {
		if len(m.known) == maxManagers || unix.Stat(p.file(pid, ""), &st) != nil || !owners[st.Uid] {
			continue
		}
		text, _ := p.read(pid, "cmdline", maxCommand)
		if !bytes.Contains(text, []byte("\x00"+m.class+"\x00")) {
			continue
		}
		l, err := p.life(pid)
		if err != nil {
			continue
		}
		k := manager{pid: pid, start: l.start}
		status, err := p.status(pid)
		if err == nil && len(status.pids) > 1 {
			k.space, err = p.space(pid)
		}
		if err != nil {
			m.hidden = true
			continue
		}
		m.known = append(m.known, k)
	}
}

// numbers returns the numbers under which a process's session may be recorded.
func (m *managers) numbers(p proc, l life) (out []int) {
	nested := false
	for _, k := range m.known {
		nested = nested || k.space != ""
	}
	if len(m.known) == 0 || slices.ContainsFunc(m.known, func(k manager) bool { return k.space == "" }) {
		out = append(out, l.session)
	}
	if !nested {
		return out
	}
	space, err := p.space(l.pid)
	if err != nil || !slices.ContainsFunc(m.known, func(k manager) bool { return k.space == space }) {
		return out
	}
	// The last number is the one in the process's own namespace. It is 0 if the session's leader is
	// not in it.
	if st, err := p.status(l.pid); err == nil && len(st.sessions) > 1 {
		out = append(out, st.sessions[len(st.sessions)-1])
	}
	return out
}
