package install

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// format is the syntax of a file.
type format int

const (
	hadoopXML format = iota
	sparkProperties
	// plainText has no keys, only pieces of our text.
	plainText
)

// entry is one definition of a key. start and end enclose the bytes to replace when its value
// changes; they are -1 for a definition in an included file.
type entry struct {
	key, value string
	final      bool
	start, end int
	valueAt    int // offset from start at which a property's value begins
}

// document is a parsed file.
type document struct {
	format  format
	entries []entry

	// The tags of an XML file's root element.
	rooted, empty          bool
	rootName               string
	rootStart, open, close int
	path                   []string
}

// effective returns the definition of a key that Hadoop or Spark uses if there are several.
func (d *document) effective(key string) (entry, bool) {
	var held entry
	found := false
	for _, e := range d.entries {
		if e.key == key && !held.final {
			held, found = e, true
		}
	}
	return held, found
}

func parse(f format, text []byte, include func(string) ([]byte, error)) (*document, error) {
	switch f {
	case hadoopXML:
		return parseXML(text, include)
	case sparkProperties:
		return parseProperties(text)
	}
	return &document{format: plainText}, nil
}

// setting is a key with its value.
type setting struct{ key, value string }

// want is a requirement on a key.
type want struct {
	key string
	// set is the value that the key must have. An existing value must equal set or byDefault (the
	// value that applies without the key); any other value is a conflict.
	set, byDefault string
	// add is the item that the value, a list separated by sep, must contain. If the key is missing,
	// the new list begins with fallback, which is the value that applies without the key.
	add, sep, fallback string
	// hides is the file from which fallback was read, or empty.
	hides string
	// also is another key whose options the JVM gets as well.
	also string
}

// edit is one change of a file's text.
type edit struct {
	// Key is the key whose value was changed. If Key is empty, the edit replaced a piece of text,
	// or inserted one if Old is empty.
	Key string `json:"property,omitempty"`
	Old text   `json:"old"`
	New text   `json:"new"`
	// Soft marks a piece that need not be undone if others have made changes that need it.
	Soft bool `json:"soft,omitempty"`
	// Line reports whether New begins with the line break that ends the previous line. That line
	// break has to stay if others have added lines after New.
	Line bool `json:"line,omitempty"`
}

// conflict is a setting that somebody else has made and that would have to be overwritten.
type conflict struct {
	what string
	// A hard conflict is not overwritten even with --force.
	hard bool
}

// change edits the text so that it fulfils the wants. It returns the new text, the edits in the
// order in which they were made, and the conflicts.
func change(f format, base []byte, wants []want, include func(string) ([]byte, error), force bool) ([]byte, []edit, []conflict, error) {
	doc, err := parse(f, base, include)
	if err != nil {
		return nil, nil, nil, err
	}
	next := bytes.Clone(base)
	var edits []edit
	var conflicts []conflict
	var missing []setting
	intended := map[string]string{}
	for _, w := range wants {
		e, there := doc.effective(w.key)
		value, c := w.value(e, there)
		if also, ok := doc.effective(w.also); ok && c == nil {
			c = w.agentIn(also)
		}
		if c != nil {
			conflicts = append(conflicts, *c)
			if c.hard || !force {
				continue
			}
		}
		if there && value == e.value {
			continue
		}
		if there && e.final && e.start < 0 {
			conflicts = append(conflicts, conflict{what: w.key + " is final where it cannot be changed (in an included file, or without a value)", hard: true})
			continue
		}
		intended[w.key] = value
		if !there || e.start < 0 {
			missing = append(missing, setting{w.key, value})
			continue
		}
		old := string(base[e.start:e.end])
		edits = append(edits, edit{Key: w.key, Old: text(old), New: text(replaced(f, old, e.value, value, w.add != ""))})
	}
	for _, ed := range edits {
		if next, err = ed.apply(f, next, include); err != nil {
			return nil, nil, nil, err
		}
	}
	if len(missing) > 0 {
		more, err := add(f, &next, missing, include)
		if err != nil {
			return nil, nil, nil, err
		}
		edits = append(edits, more...)
	}
	return next, edits, conflicts, verify(f, base, next, edits, intended, include)
}

// value returns the value that the key must have, and a conflict if somebody else has set another
// value.
func (w want) value(e entry, there bool) (string, *conflict) {
	if w.add == "" {
		if value := strings.TrimSpace(e.value); there && value != w.set && value != w.byDefault {
			return w.set, &conflict{what: fmt.Sprintf("%s is %q", w.key, e.value)}
		}
		return w.set, nil
	}
	if !there {
		return w.first(), nil
	}
	if w.has(e.value) {
		return e.value, nil
	}
	if c := w.agentIn(e); c != nil {
		return e.value, c
	}
	if strings.TrimSpace(e.value) == "" {
		return w.add, nil
	}
	value := strings.TrimRight(e.value, " \t\r\n")
	return value + strings.TrimPrefix(w.sep, value[len(value)-1:]) + w.add, nil
}

// first returns the value of a key that nobody has set before.
func (w want) first() string {
	switch {
	case w.add == "":
		return w.set
	case w.fallback == "":
		return w.add
	}
	return w.fallback + w.sep + w.add
}

// agentIn returns a conflict if the options contain the Penstock agent already; a JVM must not have
// two.
func (w want) agentIn(e entry) *conflict {
	for _, option := range strings.Fields(e.value) {
		if strings.HasPrefix(option, "-javaagent:") && strings.Contains(option, "penstock-agent") {
			return &conflict{what: fmt.Sprintf("%s has %s already: take it out", e.key, option), hard: true}
		}
	}
	return nil
}

// has reports whether the list contains the item to add.
func (w want) has(list string) bool {
	if w.sep == " " {
		words := func(s string) string { return " " + strings.Join(strings.Fields(s), " ") + " " }
		return strings.Contains(words(list), words(w.add))
	}
	return slices.ContainsFunc(strings.Split(list, w.sep), func(s string) bool { return strings.TrimSpace(s) == w.add })
}

// replaced returns an entry's text with the value to instead of from. If longer is true, to only
// extends from, and the text of from stays as it is written.
func replaced(f format, old, from, to string, longer bool) string {
	more, ok := strings.CutPrefix(to, strings.TrimRight(from, " \t\r\n"))
	longer = longer && ok && strings.TrimSpace(from) != ""
	switch {
	case f == hadoopXML && longer:
		return xmlAppend(old, more)
	case f == hadoopXML:
		return xmlReplace(old, to)
	case longer:
		return propertyAppend(old, more)
	}
	return propertyReplace(old, to)
}

// add appends definitions after all others.
func add(f format, next *[]byte, settings []setting, include func(string) ([]byte, error)) ([]edit, error) {
	var edits []edit
	if f == sparkProperties {
		block := propertyBlock(*next, settings)
		return []edit{appended(next, block)}, nil
	}
	eol := lineEnd(*next)
	doc, err := parseXML(*next, include)
	if err != nil {
		return nil, err
	}
	if !doc.rooted || doc.empty {
		e := edit{Old: text(*next), New: text(xmlSkeleton(eol)), Soft: true}
		if doc.empty {
			tag := string((*next)[doc.rootStart:doc.open])
			e.Old, e.New = text(tag), text(strings.TrimRight(strings.TrimSuffix(tag, "/>"), " \t\r\n")+">"+eol+"</"+doc.rootName+">")
			*next = splice(*next, doc.rootStart, doc.open, string(e.New))
		} else {
			*next = []byte(e.New)
		}
		edits = append(edits, e)
		if doc, err = parseXML(*next, include); err != nil {
			return nil, err
		}
	}
	at, block := xmlBlock(*next, doc, settings)
	*next = splice(*next, at, at, block)
	return append(edits, edit{New: text(block)}), nil
}

// appended appends a block to the text.
func appended(next *[]byte, block string) edit {
	e := edit{New: text(block), Line: len(*next) > 0 && !bytes.HasSuffix(*next, []byte("\n"))}
	*next = append(bytes.Clone(*next), block...)
	return e
}

func splice(t []byte, start, end int, with string) []byte {
	return bytes.Join([][]byte{t[:start], []byte(with), t[end:]}, nil)
}

// errChanged reports that a piece of our text is no longer as it was written.
var errChanged = errors.New("was changed by hand")

// apply makes the change in the key's definition whose text is Old.
func (e edit) apply(f format, t []byte, include func(string) ([]byte, error)) ([]byte, error) {
	return e.swap(f, t, string(e.Old), string(e.New), include)
}

// undo reverts the change.
func (e edit) undo(f format, t []byte, include func(string) ([]byte, error)) ([]byte, error) {
	if e.Key != "" {
		return e.swap(f, t, string(e.New), string(e.Old), include)
	}
	if bytes.Count(t, []byte(e.New)) != 1 {
		if e.Soft {
			return t, nil
		}
		return nil, fmt.Errorf("the added text %w", errChanged)
	}
	at := bytes.Index(t, []byte(e.New))
	old := string(e.Old)
	if end := at + len(e.New); e.Line && end < len(t) {
		old = lineEnd([]byte(e.New))
	}
	return splice(t, at, at+len(e.New), old), nil
}

func (e edit) swap(f format, t []byte, from, to string, include func(string) ([]byte, error)) ([]byte, error) {
	doc, err := parse(f, t, include)
	if err != nil {
		return nil, err
	}
	at := -1
	held, _ := doc.effective(e.Key)
	for _, d := range doc.entries {
		if d.key == e.Key && d.start >= 0 && string(t[d.start:d.end]) == from {
			at = d.start
			if d == held {
				break // several have this text: take the effective one
			}
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("%s %w", e.Key, errChanged)
	}
	return splice(t, at, at+len(from), to), nil
}

// verify parses the result again. The keys must have the intended values, all others their former
// values, and undoing the edits must return the former text. A result that fails this check is not
// written.
func verify(f format, base, next []byte, edits []edit, intended map[string]string, include func(string) ([]byte, error)) error {
	before, err := parse(f, base, include)
	if err != nil {
		return err
	}
	after, err := parse(f, next, include)
	if err != nil {
		return fmt.Errorf("cannot be edited safely: %w", err)
	}
	for key, value := range intended {
		if e, ok := after.effective(key); !ok || strings.TrimRight(e.value, " \t\r\n") != value {
			return fmt.Errorf("cannot be edited safely: %s would be %q and not %q", key, e.value, value)
		}
	}
	for _, e := range before.entries {
		if _, ours := intended[e.key]; ours {
			continue
		}
		was, _ := before.effective(e.key)
		if is, ok := after.effective(e.key); !ok || is.value != was.value || is.final != was.final {
			return fmt.Errorf("cannot be edited safely: %s would change", e.key)
		}
	}
	for _, e := range after.entries {
		if _, ours := intended[e.key]; !ours {
			if _, ok := before.effective(e.key); !ok {
				return fmt.Errorf("cannot be edited safely: %s would appear", e.key)
			}
		}
	}
	back, err := undoAll(f, next, edits, include)
	if err != nil || !bytes.Equal(back, base) {
		return fmt.Errorf("cannot be edited in a way that can be undone (%v)", err)
	}
	return nil
}

// undoAll reverts edits, the last one first.
func undoAll(f format, t []byte, edits []edit, include func(string) ([]byte, error)) (_ []byte, err error) {
	for i := len(edits) - 1; i >= 0; i-- {
		if t, err = edits[i].undo(f, t, include); err != nil {
			return nil, err
		}
	}
	return t, nil
}
