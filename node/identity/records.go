package identity

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
	"penstock/node/monitor/owner"
	"penstock/node/mounts"
)

// maxRecords is the maximum number of directory entries that are read for containers, and again for
// users. If there are more, it is not certain which processes are in no container, and no
// application's user is known.
const maxRecords = 10000

// slack is the longest time by which a session's leader may seem to have begun after its record's
// file was written: the two times come from different clocks.
const slack = 2 * time.Second

// early is the longest time between the start of a session's leader and the writing of its
// record.
const early = time.Minute

// records are the files that a NodeManager keeps in its local directories. For each container
// there is a file nmPrivate/APPLICATION/CONTAINER/CONTAINER.pid with the number of the
// container's session; only the NodeManager can write in nmPrivate. For each application there is
// a directory usercache/USER/appcache/APPLICATION.
//
// The session is good evidence because a process can inherit or begin a session, but not join one,
// and because the session remains after the parent has ended.
//
// Each local directory is on a disk of its own. A disk that hangs makes the records incomplete, but delays nothing.
type records struct {
	proc   proc
	calls  *mounts.Calls
	bound  int         // maxRecords, except in tests
	denied func(error) // called with permission errors

	mu       sync.Mutex
	named    [2][]string // the local directories and Spark's, as they were given
	local    []string    // clean, with the names that links lead to
	spark    []string
	linked   map[string]bool // directories whose links were read
	at       time.Time       // when sessions were read
	sessions map[int][]record
	managers managers
	// complete: every file could be read, and the numbers belong to a namespace that we know.
	// Then a process that is in none of the sessions is in no container.
	complete bool
	usersAt  time.Time
	users    map[string]string // an application's user; "" if several users have a directory for it
}

// record is one container's file. Two NodeManagers in different pid namespaces may have records
// with the same number.
type record struct {
	container string
	path      string // of the file
	written   time.Time
}

func newRecords(p proc, calls *mounts.Calls) *records {
	return &records{proc: p, calls: calls, bound: maxRecords, managers: managers{class: mainClass}}
}

// diskPatience is the longest wait for a directory of records. A busy disk needs a part of it.
const diskPatience = 400 * time.Millisecond

// onDisks calls f for each directory at the same time. It returns the directories' results in their order; the zero
// value for one whose disk does not answer.
func onDisks[T any](calls *mounts.Calls, dirs []string, f func(dir string) T) []T {
	all := make([]T, len(dirs))
	var running sync.WaitGroup
	for i, dir := range dirs {
		running.Go(func() { all[i], _ = mounts.Do(calls, 0, dir, diskPatience, func() T { return f(dir) }, nil) })
	}
	running.Wait()
	return all
}

func (r *records) setDirs(local, spark []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named = [2][]string{local, spark}
	r.linked = map[string]bool{}
	r.local, r.spark = r.clean(local), r.clean(spark)
	r.at, r.usersAt, r.managers.at = time.Time{}, time.Time{}, time.Time{}
}

// clean returns the directories and those that links lead to: command lines have the path as configured, working
// directories the resolved path. r.mu is held.
func (r *records) clean(dirs []string) (out []string) {
	for _, d := range dirs {
		if filepath.IsAbs(d) {
			out = append(out, filepath.Clean(d))
		}
	}
	for i, l := range onDisks(r.calls, out, func(d string) link {
		real, err := filepath.EvalSymlinks(d)
		return link{real, err == nil}
	}) {
		if l.ok {
			r.linked[out[i]] = true
			out = append(out, l.to)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// link is where the links in a path lead to.
type link struct {
	to string
	ok bool
}

func (r *records) dirs() (local, spark []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.local, r.spark
}

// standalone reports whether the work directories of Spark's standalone workers are known.
func (r *records) standalone() bool {
	_, spark := r.dirs()
	return len(spark) > 0
}

// lookup returns the container of the first process in line whose session is recorded. It reads the
// records again unless they were last read after since: a container's record exists before its
// first process connects. complete reports whether a process without a record is certainly in no
// container.
func (r *records) lookup(line []life, since time.Time) (container string, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	container, doubt := r.find(line)
	if container == "" && r.at.Before(since) {
		r.read()
		container, doubt = r.find(line)
	}
	return container, r.complete && !doubt
}

// find looks up the sessions of the processes in line. doubt reports that a session's number
// matches a record but the times do not: the number may belong to another session by now, or the
// clock was changed. It also reports a record that cannot be read, because its disk hangs.
func (r *records) find(line []life) (container string, doubt bool) {
	for _, l := range line {
		nearest := time.Duration(-1)
		for _, number := range r.managers.numbers(r.proc, l) {
			for _, rec := range r.sessions[number] {
				there, err := r.isThere(rec)
				doubt = doubt || err != nil
				if !there {
					continue // the container has ended, or its disk hangs
				}
				before, ok := r.leads(l.session, rec)
				if !ok {
					continue
				}
				if before < -slack || before > early {
					doubt = true
				} else if before = before.Abs(); nearest < 0 || before < nearest {
					nearest, container = before, rec.container
				}
			}
		}
		if container != "" {
			return container, false
		}
	}
	return "", doubt
}

// leads reports whether the leader of a session still lives, and how long before the record was
// written the leader began.
func (r *records) leads(session int, rec record) (before time.Duration, ok bool) {
	l, err := r.proc.life(session)
	if err != nil || l.session != session || l.zombie {
		return 0, false
	}
	boot, err := booted()
	return rec.written.Sub(l.began(boot)), err == nil
}

// isThere reports whether a record's file is still as it was read. The error is mounts.ErrHangs.
func (r *records) isThere(rec record) (bool, error) {
	return mounts.Do(r.calls, 0, rec.path, diskPatience, func() bool {
		now, err := os.Stat(rec.path)
		return err == nil && now.ModTime().Equal(rec.written)
	}, nil)
}

// listing is what one local directory contains.
type listing struct {
	read     bool // false: its disk does not answer
	sessions map[int][]record
	owner    *uint32 // of nmPrivate
	err      error
}

func (r *records) read() {
	if known := r.named; slices.ContainsFunc(r.local, func(d string) bool { return !r.linked[d] }) {
		r.local, r.spark = r.clean(known[0]), r.clean(known[1])
	}
	r.at = time.Now()
	r.sessions = map[int][]record{}
	missing := 0
	whole := true
	owners := map[uint32]bool{}
	var left atomic.Int64
	left.Store(int64(r.bound))
	for _, l := range onDisks(r.calls, r.local, func(dir string) listing { return list(dir, &left) }) {
		for session, recs := range l.sessions {
			r.sessions[session] = append(r.sessions[session], recs...)
		}
		if l.owner != nil {
			owners[*l.owner] = true
		}
		switch {
		case !l.read:
			whole = false
		case errors.Is(l.err, os.ErrNotExist):
			missing++
		case l.err != nil:
			whole = false
			if r.denied != nil {
				r.denied(l.err)
			}
		}
	}
	r.managers.look(r.proc, owners)
	r.complete = whole && missing < len(r.local) && !r.managers.hidden && (len(r.managers.known) > 0 || r.living())
}

// list reads the records in one local directory.
func list(dir string, left *atomic.Int64) listing {
	l := listing{read: true, sessions: map[int][]record{}}
	private := filepath.Join(dir, "nmPrivate")
	var st unix.Stat_t
	if unix.Lstat(private, &st) == nil {
		l.owner = &st.Uid
	}
	l.err = each(private, left, func(app string) error {
		if !isYARNApplication(app) {
			return nil
		}
		return each(filepath.Join(private, app), left, func(container string) error {
			if owner.ApplicationOf(container) != app {
				return nil
			}
			session, rec, err := readOne(filepath.Join(private, app, container, container+".pid"), container)
			if session != 0 {
				l.sessions[session] = append(l.sessions[session], rec)
			}
			return err
		})
	})
	return l
}

// living is used if no NodeManager was found. It reports whether the records' numbers may be from
// the namespace that we see: at least one of them is the number of a living session, or there are
// no records.
func (r *records) living() bool {
	for session, recs := range r.sessions {
		for _, rec := range recs {
			if before, ok := r.leads(session, rec); ok && before >= -slack && before <= early {
				return true
			}
		}
	}
	return len(r.sessions) == 0
}

// readOne reads a container's file. The session is 0 if the file names none.
func readOne(path, container string) (session int, rec record, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return 0, rec, nil // not started yet, or a file next to the containers
	}
	if err != nil {
		return 0, rec, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, rec, err
	}
	var buf [32]byte
	n, err := f.Read(buf[:])
	if err != nil && err != io.EOF {
		return 0, rec, err
	}
	text := strings.TrimSpace(string(buf[:n]))
	session, err = strconv.Atoi(text)
	if err != nil || !owner.Digits(text, 1, 10) || session <= 1 {
		return 0, rec, nil
	}
	return session, record{container, path, st.ModTime()}, nil
}

// each calls f for the entries of a directory until left, which directories share, reaches 0.
func each(dir string, left *atomic.Int64, f func(name string) error) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil
		}
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if left.Add(-1) < 0 {
				return errLong
			}
			// A container that disappears during the read has ended and needs no record.
			if err := f(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// usersAge is the age at which the table of users is read again for an application that it does
// not contain; usersOld for one that it contains.
const (
	usersAge = time.Second
	usersOld = 30 * time.Second
)

// user returns the user in whose directory an application's containers are; "" if that is not
// certain. Below its own directory a user can create any directory. So the answer is certain only
// if the NodeManager also keeps files of the application and only one user has a directory for the
// application.
func (r *records) user(application string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	user, ok := r.users[application]
	if age := time.Since(r.usersAt); age > usersOld || !ok && age > usersAge {
		r.readUsers()
		user = r.users[application]
	}
	return user
}

func (r *records) readUsers() {
	r.usersAt = time.Now()
	r.users = map[string]string{}
	running := map[string]bool{}
	var left atomic.Int64
	left.Store(int64(r.bound))
	for _, apps := range onDisks(r.calls, r.local, func(dir string) (apps []string) {
		// Unreadable directories are skipped. This makes no other result wrong.
		_ = each(filepath.Join(dir, "nmPrivate"), &left, func(app string) error {
			apps = append(apps, app)
			return nil
		})
		return apps
	}) {
		for _, app := range apps {
			running[app] = isYARNApplication(app)
		}
	}
	type entry struct{ user, app string }
	for _, entries := range onDisks(r.calls, r.local, func(dir string) (entries []entry) {
		cache := filepath.Join(dir, "usercache")
		_ = each(cache, &left, func(user string) error {
			_ = each(filepath.Join(cache, user, "appcache"), &left, func(app string) error {
				entries = append(entries, entry{user, app})
				return nil
			})
			return nil
		})
		return entries
	}) {
		for _, e := range entries {
			if old, ok := r.users[e.app]; ok && old != e.user {
				r.users[e.app] = ""
			} else if running[e.app] {
				r.users[e.app] = e.user
			}
		}
	}
	if left.Load() < 0 {
		clear(r.users) // the rest may contain a second directory for an application
	}
}

// placeIn returns the local directory that contains a path, and the place in it.
func (r *records) placeIn(path string) (dir string, p place, ok bool) {
	if len(path) > 4095 || !filepath.IsAbs(path) {
		return "", place{}, false
	}
	path = filepath.Clean(path)
	local, spark := r.dirs()
	for _, dir := range local {
		if rel, below := strings.CutPrefix(path, dir+"/"); below {
			if p, ok := placeOf(rel); ok {
				return dir, p, true
			}
		}
	}
	for _, dir := range spark {
		if rel, below := strings.CutPrefix(path, dir+"/"); below {
			if p, ok := sparkPlaceOf(rel); ok {
				return dir, p, true
			}
		}
	}
	return "", place{}, false
}

// beneath returns the status of a directory below another one, if no link is on the way.
func beneath(dir, path string) (st unix.Stat_t, ok bool) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, false
	}
	defer unix.Close(root)
	fd, err := kernel.OpenBeneath(root, path, unix.O_PATH|unix.O_DIRECTORY, kernel.AnyMount)
	if err != nil {
		return st, false
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st) == nil
}
