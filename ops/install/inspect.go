package install

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Inspection is the state of a folder that penstock install may have prepared.
type Inspection struct {
	Folder string
	// Prepared is false if there is no state file: the folder was never prepared, or --remove has
	// restored it.
	Prepared         bool
	AgentJar, Socket string // with which the folder was prepared
	// Wrong lists the settings that are not in force, a sentence each.
	Wrong []string
}

// InspectHadoop looks at a Hadoop configuration folder and changes nothing.
func InspectHadoop(dir string) (*Inspection, error) { return inspect(dir, hadoopTargets, true) }

// InspectSpark looks at a Spark configuration folder and changes nothing.
func InspectSpark(dir string) (*Inspection, error) { return inspect(dir, sparkTargets, false) }

// InspectTez looks at a Tez configuration folder and changes nothing.
func InspectTez(dir string) (*Inspection, error) { return inspect(dir, tezTargets, false) }

func inspect(dir string, targets func(Options) []target, hadoop bool) (*Inspection, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	s, err := readState(f.path)
	if err != nil {
		return nil, err
	}
	i := &Inspection{Folder: f.path, Prepared: s != nil}
	if s == nil {
		return i, nil
	}
	i.AgentJar, i.Socket = s.AgentJar, s.Socket
	if s.AgentJar == "" || s.Socket == "" {
		i.Wrong = []string{StateFile + " does not say with which jar and socket the folder was prepared"}
		return i, nil
	}
	if !s.Done {
		i.Wrong = append(i.Wrong, "penstock install was interrupted, and some files are not prepared")
	}
	if problem := JarProblem(s.AgentJar); problem != "" {
		i.Wrong = append(i.Wrong, problem)
	}
	all := targets(Options{AgentJar: s.AgentJar, Socket: s.Socket, DiskBandwidth: s.DiskBandwidth, LeastJava: s.LeastJava})
	for _, t := range all {
		name := filepath.Join(f.path, t.path)
		lost, err := t.lost(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		hidden, err := t.hidden(f.path, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, what := range append(lost, hidden...) {
			i.Wrong = append(i.Wrong, name+" "+what)
		}
	}
	if !hadoop { // Spark's own settings win over all files, and Hadoop's files are not in Tez's folder
		return i, nil
	}
	for _, t := range all {
		found, err := elsewhere(f.path, t, "Hadoop")
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if c.hard {
				i.Wrong = append(i.Wrong, c.what)
			}
		}
	}
	return i, nil
}

// SparkSetting returns the value of a key in the file spark-defaults.conf of a folder; empty if it is not there.
func SparkSetting(dir, key string) (string, error) {
	f, err := readFile(filepath.Join(dir, "spark-defaults.conf"))
	if err != nil {
		return "", err
	}
	doc, err := parseProperties(f.text)
	if err != nil {
		return "", err
	}
	e, _ := doc.effective(key)
	return strings.TrimSpace(e.value), nil
}

// hidden finds items that somebody has added to a list in another file since penstock install
// copied this list into the target's file. The copy hides the other list, so the new items have no
// effect. A list that the target's file had before Penstock hid the other list already, so hidden
// ignores it.
func (t target) hidden(dir string, s *state) ([]string, error) {
	if err := t.inherit(dir); err != nil || !t.behind {
		return nil, err
	}
	now, err := readFile(filepath.Join(dir, t.path))
	if err != nil {
		return nil, err
	}
	include := includes(filepath.Dir(now.path))
	doc, err := parse(t.format, now.text, include)
	if err != nil {
		return nil, err
	}
	base, _, err := s.file(t.path).base(t.format, now, s.Done, include)
	if err != nil { // the file was changed by hand; penstock install reports that
		base = file{}
	}
	before, err := parse(t.format, base.text, include)
	if err != nil {
		return nil, err
	}
	var hidden []string
	for _, w := range t.wants {
		e, ok := doc.effective(w.key)
		_, theirs := before.effective(w.key)
		if !ok || theirs || w.hides == "" {
			continue
		}
		for member := range strings.SplitSeq(w.fallback, w.sep) {
			member = strings.TrimSpace(member)
			if in := (want{add: member, sep: w.sep}); member != "" && !in.has(e.value) {
				hidden = append(hidden, fmt.Sprintf("hides %s, which %s has in %s: run penstock install --apply again to copy it", member, w.hides, w.key))
			}
		}
	}
	return hidden, nil
}

// lost lists the settings that are missing from the file at the path, or have another value there.
func (t target) lost(path string) ([]string, error) {
	f, err := readFile(path)
	if err != nil {
		return nil, err
	}
	switch {
	case !f.exists && t.optional != "":
		return nil, nil
	case !f.exists:
		return []string{"is not there"}, nil
	case t.append:
		if lines := missingLines(f.text, t.whole); len(lines) > 0 {
			return []string{"lacks the line " + strings.Join(lines, ", and the line ")}, nil
		}
		return nil, nil
	case t.whole != "" && string(f.text) != t.whole:
		return []string{"is not what penstock install writes"}, nil
	case t.whole != "":
		return nil, nil
	}
	doc, err := parse(t.format, f.text, includes(filepath.Dir(f.path)))
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, w := range t.wants {
		e, ok := doc.effective(w.key)
		switch value, _ := w.value(e, ok); {
		case !ok:
			lost = append(lost, "lacks "+w.key)
		case e.value != value && w.add != "":
			lost = append(lost, fmt.Sprintf("has %s without %s", w.key, w.add))
		case e.value != value:
			lost = append(lost, fmt.Sprintf("has %s as %q and not %q", w.key, e.value, w.set))
		}
	}
	return lost, nil
}
