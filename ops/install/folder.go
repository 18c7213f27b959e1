package install

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"penstock/settings/plain"
)

// folder is a configuration folder and the plan for it.
type folder struct {
	path    string
	kind    string // Hadoop, Spark or Tez
	wanted  func(Options) []target
	targets []target // of this run, and files that only the previous run wrote
	disk    disk
	old     *state
	next    state
	writes  []fileWrite
	remove  bool
}

// fileWrite is one file's change.
type fileWrite struct {
	rel, path string // relative to the folder, and with links resolved
	now, next file
}

func openFolder(path string) (*folder, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &plain.Error{What: path + ": no such folder", Cause: err}
	}
	if err != nil {
		return nil, plain.File(err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", path)
	}
	return &folder{path: real}, nil
}

// Every configuration folder contains at least one of the usual files.
var (
	usualHadoop = []string{"core-site.xml", "hdfs-site.xml", "mapred-site.xml", "yarn-site.xml", "capacity-scheduler.xml", "hadoop-env.sh"}
	usualSpark  = []string{"spark-defaults.conf", "spark-env.sh", "log4j2.properties", "log4j.properties", "metrics.properties", "fairscheduler.xml", "workers", "hive-site.xml"}
	usualTez    = []string{"tez-site.xml"}
)

// stranger returns a message if the folder does not look like a configuration folder, that is, if
// it contains neither a usual file nor the template of a usual file. It returns an empty string if
// the folder does look like one, or if an earlier run has prepared it.
func (f *folder) stranger(kind string, usual []string) string {
	if f.old != nil {
		return ""
	}
	for _, name := range usual {
		for _, suffix := range []string{"", ".template"} {
			if _, err := os.Lstat(filepath.Join(f.path, name+suffix)); err == nil {
				return ""
			}
		}
	}
	missing := usual[0] + " is not in it"
	if len(usual) > 1 {
		missing = fmt.Sprintf("neither %s nor %s is in it", usual[0], usual[1])
	}
	return fmt.Sprintf("%s is not a configuration folder of %s: %s", f.path, kind, missing)
}

// plan decides what to write. It always starts from the files as they would be without Penstock. So
// a second run changes nothing, and a run with other paths changes only these paths.
func (f *folder) plan(o Options, remove bool, r *Report) (err error) {
	if f.old, err = readState(f.path); err != nil {
		return err
	}
	f.remove = remove
	f.next = state{Version: stateVersion, Done: true}
	if f.old != nil {
		f.next.Made = f.old.Made
		if o.DiskBandwidth == "" {
			o.DiskBandwidth = f.old.DiskBandwidth
		}
		o.LeastJava = cmp.Or(o.LeastJava, f.old.LeastJava)
	}
	f.targets = f.wanted(o)
	if !remove {
		f.next.AgentJar, f.next.Socket, f.next.DiskBandwidth = o.AgentJar, o.Socket, bandwidthOf(f.targets)
		f.next.LeastJava = o.LeastJava
	}
	if f.old != nil {
		for _, d := range f.old.Files {
			if !slices.ContainsFunc(f.targets, func(t target) bool { return t.path == d.Path }) {
				if kind := kindOf(d.Path); kind != "" && kind != f.kind {
					return fmt.Errorf("%s was prepared as the configuration folder of %s, so it cannot be that of %s: each of them needs a folder of its own", f.path, kind, f.kind)
				}
				f.targets = append(f.targets, target{path: d.Path, format: hadoopXML, restart: restartYARN})
			}
		}
	}
	for _, t := range f.targets {
		if err := f.planFile(t, o, r); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(f.path, t.path), err)
		}
	}
	return nil
}

func (f *folder) planFile(t target, o Options, r *Report) error {
	full := filepath.Join(f.path, t.path)
	now, err := readFile(full)
	if err != nil {
		return err
	}
	include := includes(filepath.Dir(now.path))
	done := f.old.file(t.path)
	base, made, err := done.base(t.format, now, f.old == nil || f.old.Done, include)
	out := f.remove || t.unwanted()
	if errors.Is(err, errChanged) && out && o.Force {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %v since, and is left as it is", full, err))
		base, err = now, nil
	}
	if errors.Is(err, errChanged) {
		again := "--remove --force"
		if !f.remove && t.restart == restartYARN { // the other settings can stay
			again = "--disk-bandwidth 0 --apply --force"
		}
		r.Conflicts = append(r.Conflicts, fmt.Sprintf("%s: %v since penstock install wrote it. Restore it as recorded in %s, or delete it from the file by hand and run %s", full, err, StateFile, again))
		r.Files = append(r.Files, FileReport{Path: full, Action: Keep})
		return nil
	}
	if err != nil {
		return err
	}
	next := base
	if t.optional != "" && !now.exists {
		if !f.remove {
			r.Notes = append(r.Notes, full+" "+t.optional)
		}
		return nil
	}
	if !f.remove {
		if err := t.inherit(f.path); err != nil {
			return err
		}
		edits, conflicts, err := t.change(&next, include, o.Force)
		if err != nil {
			return err
		}
		var named []conflict
		for _, c := range conflicts {
			named = append(named, conflict{full + ": " + c.what, c.hard})
		}
		r.conflicts(named, o.Force)
		if alike(edits, made) { // nothing to change, but somebody may have added text after the edits
			next, edits = now, made
		}
		if len(edits) > 0 {
			f.next.Files = append(f.next.Files, fileDone{Path: t.path, Existed: base.exists, Before: digestOf(base),
				Forms: []form{{After: digest(next.text), Edits: edits}}})
		}
	}
	report := FileReport{Path: full, Action: Keep}
	if now.exists != next.exists || !bytes.Equal(now.text, next.text) {
		f.writes = append(f.writes, fileWrite{rel: t.path, path: now.path, now: now, next: next})
		report.Action = Change
		switch {
		case !now.exists:
			report.Action = Create
		case !next.exists:
			report.Action = Delete
		}
		report.Diff = unified(full, now, next)
		if t.note != "" && !f.remove {
			r.Notes = append(r.Notes, t.note)
		}
		if t.restart != "" {
			r.Restart = append(r.Restart, t.restart)
		}
	}
	r.Files = append(r.Files, report)
	return nil
}

// alike reports whether edits are equal, regardless of their position in the file.
func alike(a, b []edit) bool {
	return slices.EqualFunc(a, b, func(a, b edit) bool {
		return a.Key == b.Key && strings.TrimLeft(string(a.New), "\r\n") == strings.TrimLeft(string(b.New), "\r\n")
	})
}

func digestOf(f file) string {
	if !f.exists {
		return ""
	}
	return digest(f.text)
}

// unwanted reports whether this run wants nothing in the file. The file is a target only because
// the previous run changed it, and those changes are undone.
func (t target) unwanted() bool { return t.whole == "" && len(t.wants) == 0 }

// change makes the file fulfil the target.
func (t target) change(f *file, include func(string) ([]byte, error), force bool) ([]edit, []conflict, error) {
	if t.unwanted() {
		return nil, nil, nil
	}
	if t.whole == "" {
		next, edits, conflicts, err := change(t.format, f.text, t.wants, include, force)
		if err == nil && len(edits) > 0 {
			f.text, f.exists = next, true
		}
		return edits, conflicts, err
	}
	if t.append {
		lines := missingLines(f.text, t.whole)
		if len(lines) == 0 {
			return nil, nil, nil
		}
		const eol = "\n" // a shell reads the file: a carriage return would belong to a command
		block := eol + "# " + ourComment + eol + strings.Join(lines, eol) + eol
		if len(f.text) == 0 {
			block = block[len(eol):]
		} else if !bytes.HasSuffix(f.text, []byte("\n")) {
			block = eol + block
		}
		e := appended(&f.text, block)
		f.exists = true
		return []edit{e}, nil, nil
	}
	if string(f.text) == t.whole {
		return nil, nil, nil
	}
	var conflicts []conflict
	if f.exists && len(bytes.TrimSpace(f.text)) > 0 {
		conflicts = append(conflicts, conflict{what: "is there already, with another text"})
	}
	e := edit{Old: text(f.text), New: text(t.whole)}
	f.text, f.exists = []byte(t.whole), true
	return []edit{e}, conflicts, nil
}

// missingLines returns the lines of wanted that the text does not have.
func missingLines(text []byte, wanted string) (missing []string) {
	has := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		has[strings.TrimSpace(line)] = true
	}
	for line := range strings.SplitSeq(wanted, "\n") {
		if !has[line] {
			missing = append(missing, line)
		}
	}
	return missing
}

// write carries out the plan. The state file is written first, with every form that a file may have
// after an interruption, and again at the end, with the form that each file has.
func (f *folder) write() (bool, error) {
	name := filepath.Join(f.path, StateFile)
	for _, t := range f.targets { // remove temporary files that an interrupted run has left
		if now, err := readFile(filepath.Join(f.path, t.path)); err == nil {
			if err := f.disk.remove(temporaryName(now.path)); err != nil {
				return false, err
			}
		}
	}
	if err := f.disk.remove(temporaryName(name)); err != nil {
		return false, err
	}
	during := f.during()
	final := f.next.encode()
	if len(f.writes) == 0 {
		same := f.old == nil && len(f.next.Files) == 0
		if f.old != nil && !f.remove && len(f.next.Files) > 0 {
			same = bytes.Equal(f.old.encode(), final)
		}
		if same {
			return false, nil
		}
	}
	if len(f.writes) > 0 {
		if err := f.disk.write(name, during.encode()); err != nil {
			return false, err
		}
	}
	for _, w := range f.writes {
		if err := f.writeFile(w); err != nil {
			return true, err
		}
	}
	if f.remove || len(f.next.Files) == 0 {
		for _, dir := range f.next.Made {
			if err := f.disk.rmdir(filepath.Join(f.path, dir)); err != nil {
				return true, err
			}
		}
		return true, f.disk.remove(name)
	}
	return true, f.disk.write(name, final)
}

// during returns the state to record while files are written, when each file may have its old or
// its new form.
func (f *folder) during() state {
	s := state{Version: stateVersion, AgentJar: f.next.AgentJar, Socket: f.next.Socket, DiskBandwidth: f.next.DiskBandwidth, LeastJava: f.next.LeastJava, Made: f.next.Made}
	for _, w := range f.writes {
		if dir := filepath.Dir(w.rel); dir != "." && w.next.exists && !slices.Contains(s.Made, dir) {
			if _, err := os.Stat(filepath.Join(f.path, dir)); errors.Is(err, os.ErrNotExist) {
				s.Made = append(s.Made, dir)
			}
		}
	}
	f.next.Made = s.Made
	for _, t := range f.targets {
		next, old := f.next.file(t.path), f.old.file(t.path)
		switch {
		case next != nil && old != nil:
			both := *next
			both.Forms = append(append([]form{}, next.Forms...), old.Forms...)
			s.Files = append(s.Files, both)
		case next != nil:
			s.Files = append(s.Files, *next)
		case old != nil:
			s.Files = append(s.Files, *old)
		}
	}
	return s
}

func (f *folder) writeFile(w fileWrite) error {
	if !w.next.exists {
		return f.disk.remove(w.path)
	}
	if dir := filepath.Dir(w.path); !w.now.exists {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			if err := f.disk.mkdir(dir); err != nil {
				return err
			}
		}
	}
	// Somebody may have written the file since it was read.
	if again, err := readFile(filepath.Join(f.path, w.rel)); err != nil || again.exists != w.now.exists || !bytes.Equal(again.text, w.now.text) {
		return fmt.Errorf("%s was changed meanwhile (%v)", w.path, err)
	}
	return f.disk.write(w.path, w.next.text)
}

// includes reads the files that an XML file in dir includes. It does not follow other URLs, as the
// machine that prepares a folder may not reach them.
func includes(dir string) func(string) ([]byte, error) {
	return func(href string) ([]byte, error) {
		if u, err := url.Parse(href); err == nil && u.Scheme == "file" {
			href = u.Path
		} else if err == nil && u.Scheme != "" {
			return nil, fmt.Errorf("%s is not a file", href)
		}
		if !filepath.IsAbs(href) {
			href = filepath.Join(dir, href)
		}
		f, err := readFile(href)
		if err == nil && !f.exists {
			err = fmt.Errorf("%s is not there", href)
		}
		return f.text, err
	}
}
