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
)

// maxRecords bounds the directories that are read for containers and for users: past it
// the rest is not known.
const maxRecords = 10000

// slack is how much later than its record's file a session's leader may seem to have
// begun: both are read from different clocks.
const slack = 2 * time.Second

// early is how long a leader may have been there before its record is written.
const early = time.Minute

// records are what a NodeManager keeps in its local directories: for each container a
// file nmPrivate/APPLICATION/CONTAINER/CONTAINER.pid with the number of the session
// that it runs in, in a directory that is the NodeManager's alone; and a directory
// usercache/USER/appcache/APPLICATION for each application.
//
// The session is good evidence because a process can inherit one or begin one, but
// not join one, and because it stays when the parent is gone.
type records struct {
	proc   proc
	bound  int         // maxRecords, but for tests
	denied func(error) // told of what may not be read

	mu       sync.Mutex
	local    []string // clean
	spark    []string
	at       time.Time // when sessions were read
	sessions map[int][]record
	managers managers
	// complete: every file could be read, and the numbers are of a namespace that we
	// know. Then a process that is in none of the sessions is in no container.
	complete bool
	usersAt  time.Time
	users    map[string]string // an application's user; "" if several claim it
}

// record is one file. Two NodeManagers in pid namespaces of their own may have
// records of the same number.
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
			// Command lines have the path as it was configured, working directories as it is.
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

// lookup gives the container of the nearest of a line's processes whose session is
// recorded. The records are read again unless they were read after since: a container's
// record is there before its first process asks for anything. complete says that a
// process for which there is none is in no container.
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

// find looks a line's sessions up. doubt says that the numbers of one match, but its times
// do not: the number may be another's by now, or somebody has set the clock.
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

// leads reports whether a process leads a session, and how long before a record it began.
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
				if applicationOf(container) != app {
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

// living tells, where no NodeManager was found, whether the numbers may be of the
// namespace that we see: at least one leads a session, or there is none.
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
		return nil // not started yet, or a file beside the containers
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
	if session, err := strconv.Atoi(text); err == nil && digits(text, 1, 10) && session > 1 {
		r.sessions[session] = append(r.sessions[session], record{container, path, st.ModTime()})
	}
	return nil
}

// each calls f for the entries of a directory, as long as left lasts.
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
			// What is deleted while it is read ended, and needs no record.
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

// usersAge is how long the table of users is used before it is read again for an
// application that it does not know; usersOld for one that it knows.
const (
	usersAge = time.Second
	usersOld = 30 * time.Second
)

// user gives the user whose directory an application's containers have here; "" if
// that is not certain: below a directory of his own a user can make any other, so
// the NodeManager must keep something of the application too, and only one user may have
// a directory for it.
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
		// What cannot be read is not known; it makes nothing else wrong.
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
		clear(r.users) // a second directory for an application may be in the rest
	}
}

// placeIn finds which of the local directories a path lies in, and where.
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

// beneath looks at a directory below another one, on the way to which there is no link.
func beneath(dir, path string) (st unix.Stat_t, ok bool) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, false
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return st, false
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st) == nil
}
