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
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
	"penstock/node/monitor/owner"
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
type records struct {
	proc   proc
	bound  int         // maxRecords, except in tests
	denied func(error) // called with permission errors

	mu       sync.Mutex
	local    []string // clean
	spark    []string
	at       time.Time // when sessions were read
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

func newRecords(p proc) *records {
	return &records{proc: p, bound: maxRecords, managers: managers{class: mainClass}}
}

func (r *records) setDirs(local, spark []string) {
	clean := func(dirs []string) (out []string) {
		for _, d := range dirs {
			if !filepath.IsAbs(d) {
				continue
			}
			out = append(out, filepath.Clean(d))
			// Command lines have the path as configured, working directories the resolved path.
			if real, err := filepath.EvalSymlinks(d); err == nil {
				out = append(out, real)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	local, spark = clean(local), clean(spark)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.local, r.spark = local, spark
	r.at, r.usersAt, r.managers.at = time.Time{}, time.Time{}, time.Time{}
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
// clock was changed.
func (r *records) find(line []life) (container string, doubt bool) {
	for _, l := range line {
		nearest := time.Duration(-1)
		for _, number := range r.managers.numbers(r.proc, l) {
			for _, rec := range r.sessions[number] {
				if now, err := os.Stat(rec.path); err != nil || !now.ModTime().Equal(rec.written) {
					continue // the container has ended
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

func (r *records) read() {
	r.at = time.Now()
	r.sessions = map[int][]record{}
	missing, left := 0, r.bound
	whole := true
	owners := map[uint32]bool{}
	for _, dir := range r.local {
		private := filepath.Join(dir, "nmPrivate")
		var st unix.Stat_t
		if unix.Lstat(private, &st) == nil {
			owners[st.Uid] = true
		}
		err := each(private, &left, func(app string) error {
			if !isYARNApplication(app) {
				return nil
			}
			return each(filepath.Join(private, app), &left, func(container string) error {
				if owner.ApplicationOf(container) != app {
					return nil
				}
				return r.readOne(filepath.Join(private, app, container, container+".pid"), container)
			})
		})
		if errors.Is(err, os.ErrNotExist) {
			missing++
		} else if err != nil {
			whole = false
			if r.denied != nil {
				r.denied(err)
			}
		}
	}
	r.managers.look(r.proc, owners)
	r.complete = whole && missing < len(r.local) && !r.managers.hidden && (len(r.managers.known) > 0 || r.living())
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

func (r *records) readOne(path, container string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // not started yet, or a file next to the containers
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var buf [32]byte
	n, err := f.Read(buf[:])
	if err != nil && err != io.EOF {
		return err
	}
	text := strings.TrimSpace(string(buf[:n]))
	if session, err := strconv.Atoi(text); err == nil && owner.Digits(text, 1, 10) && session > 1 {
		r.sessions[session] = append(r.sessions[session], record{container, path, st.ModTime()})
	}
	return nil
}

// each calls f for the entries of a directory until left reaches 0.
func each(dir string, left *int, f func(name string) error) error {
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
			if *left--; *left < 0 {
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
	left := r.bound
	note := func(user, app string) {
		if old, ok := r.users[app]; ok && old != user {
			r.users[app] = ""
		} else if running[app] {
			r.users[app] = user
		}
	}
	for _, dir := range r.local {
		// Unreadable directories are skipped. This makes no other result wrong.
		_ = each(filepath.Join(dir, "nmPrivate"), &left, func(app string) error {
			running[app] = isYARNApplication(app)
			return nil
		})
	}
	for _, dir := range r.local {
		cache := filepath.Join(dir, "usercache")
		_ = each(cache, &left, func(user string) error {
			_ = each(filepath.Join(cache, user, "appcache"), &left, func(app string) error {
				note(user, app)
				return nil
			})
			return nil
		})
	}
	if left < 0 {
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
