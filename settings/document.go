package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes is the maximum number of fields and entries of a document. Aliases can make a small
// file large.
const maxNodes = 1_000_000

// maxDepth is the maximum depth of nested values. An alias may refer to a value that contains the
// alias itself.
const maxDepth = 32

// maxMerges is the maximum depth of merged mappings.
const maxMerges = 8

// Document is a YAML document that was read into a struct, with its mistakes. Later checks of the
// values add their own mistakes with positions (Add), so one error lists all mistakes of the file.
type Document struct {
	root     *yaml.Node // nil if the document has only comments
	mistakes Mistakes
	wrong    map[*yaml.Node]bool     // values with a mistake
	unknown  map[*yaml.Node]bool     // mappings with a misspelt field
	fields   map[*yaml.Node][]string // names of the fields that a mapping may have
	left     int                     // remaining part of maxNodes
	depth    int                     // depth of the value that is being read
}

// ParseDocument reads one YAML document into a struct. The struct's fields have the tag yaml or
// json. what names the document in messages, such as "the policy". A list may have the tag entry,
// which names its entries: `entry:"a rule"`. If the text is not YAML, the error has the type
// Mistakes; Err returns all other mistakes, and fields with a mistake keep their values.
func ParseDocument(text []byte, what string, into any) (*Document, error) {
	d := &Document{wrong: map[*yaml.Node]bool{}, unknown: map[*yaml.Node]bool{}, fields: map[*yaml.Node][]string{}, left: maxNodes}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, Mistakes{noYAML(err)}
	}
	if len(doc.Content) > 0 {
		d.root = target(doc.Content[0])
		d.decode(d.root, reflect.ValueOf(into).Elem(), what)
	}
	switch err := dec.Decode(new(yaml.Node)); {
	case err == nil:
		d.mistakes = append(d.mistakes, Mistake{What: "the file has more than one document: keep one"})
	case !errors.Is(err, io.EOF):
		d.mistakes = append(d.mistakes, noYAML(err))
	}
	return d, nil
}

// Err returns all mistakes in the order of the file, as Mistakes, or nil if there are none.
func (d *Document) Err() error {
	if len(d.mistakes) == 0 {
		return nil
	}
	return d.mistakes.sorted()
}

var lineOf = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// noYAML returns the reason why a text is not YAML.
func noYAML(err error) Mistake {
	parts := lineOf.FindStringSubmatch(err.Error())
	what := err.Error()[len(parts[0]):]
	line, _ := strconv.Atoi(parts[1])
	if strings.Contains(what, "UTF-") || strings.Contains(what, "control characters") {
		return Mistake{line, 0, "not a text file (" + what + ")"}
	}
	if strings.Contains(what, "cannot start any token") || strings.Contains(what, "tab character") {
		what += " (indent with spaces, not with tabs)"
	}
	return Mistake{line, 0, "not YAML: " + what}
}

func (d *Document) mistake(at *yaml.Node, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{at.Line, at.Column, fmt.Sprintf(format, args...)})
}

// decode reads a value. what names it in messages.
func (d *Document) decode(n *yaml.Node, into reflect.Value, what string) {
	if d.left--; d.left <= 0 {
		if d.left == 0 {
			d.mistake(n, "aliases make the document too large")
		}
		return
	}
	n = target(n)
	if n.ShortTag() == "!!null" {
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	if d.depth > maxDepth {
		d.mistake(n, "%s: more than %d levels", what, maxDepth)
		return
	}
	if _, own := into.Addr().Interface().(yaml.Unmarshaler); own {
		d.decodeScalar(n, into, what)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.decode(n, into.Elem(), what)
	case reflect.Struct:
		d.decodeStruct(n, into, what)
	case reflect.Map:
		d.decodeMap(n, into, what)
	case reflect.Slice:
		d.decodeList(n, into, what, what+": an entry")
	default:
		d.decodeScalar(n, into, what)
	}
}

func (d *Document) decodeStruct(n *yaml.Node, into reflect.Value, what string) {
	places := map[string]int{}
	var names []string
	for i := range into.NumField() {
		tags := into.Type().Field(i).Tag
		if name, _, _ := strings.Cut(cmp.Or(tags.Get("yaml"), tags.Get("json")), ","); name != "" && name != "-" {
			places[name] = i
			names = append(names, name)
		}
	}
	if n.Kind != yaml.MappingNode {
		d.wrong[n] = true
		d.mistake(n, "%s must be a mapping of fields: %s", what, listed(names))
		return
	}
	d.fields[n] = names
	seen := map[string]bool{}
	for _, f := range d.entries(n, what) {
		place, known := places[f.key.Value]
		if !known {
			d.unknown[n] = true
			d.mistake(f.key, "%s has no field %.40q%s", what, f.key.Value, suggestion(f.key.Value, names))
			continue
		}
		if seen[f.key.Value] {
			if !f.merged {
				d.mistake(f.key, "field %s is given twice", f.key.Value)
			}
			continue
		}
		seen[f.key.Value] = true
		field := into.Type().Field(place)
		name := f.key.Value
		_, scalar := into.Field(place).Addr().Interface().(yaml.Unmarshaler)
		if what != "" && field.Type.Kind() == reflect.Struct && !scalar && n != d.root {
			name = what + "." + name
		}
		if entry := field.Tag.Get("entry"); entry != "" {
			d.decodeList(target(f.value), into.Field(place), name, entry)
			continue
		}
		d.decode(f.value, into.Field(place), name)
	}
}

func (d *Document) decodeMap(n *yaml.Node, into reflect.Value, what string) {
	if n.Kind != yaml.MappingNode {
		d.wrong[n] = true
		d.mistake(n, "%s must be a mapping: NAME: VALUE", what)
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, f := range d.entries(n, what) {
		name := reflect.ValueOf(f.key.Value).Convert(into.Type().Key())
		if into.MapIndex(name).IsValid() {
			if !f.merged {
				d.mistake(f.key, "%s: %.40q is given twice", what, f.key.Value)
			}
			continue
		}
		value := reflect.New(into.Type().Elem()).Elem()
		d.decode(f.value, value, fmt.Sprintf("%s.%.40s", what, f.key.Value))
		into.SetMapIndex(name, value)
	}
}

func (d *Document) decodeList(n *yaml.Node, into reflect.Value, what, entry string) {
	switch {
	case n.ShortTag() == "!!null":
		return
	case n.Kind != yaml.SequenceNode:
		d.wrong[n] = true
		d.mistake(n, "%s is a list: begin each entry with \"- \"", what)
		return
	}
	list := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, one := range n.Content {
		d.decode(one, list.Index(i), entry)
	}
	into.Set(list)
}

// decodeScalar reads a number, a text or a value with its own UnmarshalYAML.
func (d *Document) decodeScalar(n *yaml.Node, into reflect.Value, what string) {
	want := ""
	switch into.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		want = "a whole number"
	case reflect.Float64:
		want = "a number"
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "a text"
	}
	_, own := into.Addr().Interface().(yaml.Unmarshaler)
	fraction := false
	if !own && want == "a whole number" && n.ShortTag() == "!!float" {
		// The library would truncate the number.
		v, err := strconv.ParseFloat(n.Value, 64)
		fraction = err != nil || v != math.Trunc(v)
	}
	var err error
	if !fraction {
		if err = n.Decode(into.Addr().Interface()); err == nil {
			return
		}
	}
	d.wrong[n] = true
	switch {
	case own:
		d.mistake(n, "%s: %s", what, withoutLine(err))
	case n.Kind != yaml.ScalarNode:
		d.mistake(n, "%s: give %s", what, want)
	default:
		d.mistake(n, "%s: %.40q: give %s", what, n.Value, want)
	}
}

// withoutLine returns the message of an error of UnmarshalYAML, without its line number.
func withoutLine(err error) string {
	text := err.Error()
	var several *yaml.TypeError
	if errors.As(err, &several) && len(several.Errors) > 0 {
		text = several.Errors[0]
	}
	return text[len(lineOf.FindString(text)):]
}

// entry is a field of a mapping. merged is set if the key << merged it from another mapping.
type entry struct {
	key, value *yaml.Node
	merged     bool
}

// entries returns the fields of a mapping, its own fields first.
func (d *Document) entries(n *yaml.Node, what string) []entry {
	own, merged := d.fieldsOf(n, what, 0)
	return append(own, merged...)
}

func (d *Document) fieldsOf(n *yaml.Node, what string, depth int) (own, merged []entry) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		if key.ShortTag() != "!!merge" {
			own = append(own, entry{key, value, depth > 0})
			continue
		}
		from := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			from = value.Content
		}
		for _, m := range from {
			if m = target(m); m.Kind != yaml.MappingNode || depth == maxMerges {
				d.mistake(key, "%s: << merges mappings, at most %d deep", what, maxMerges)
				break
			}
			if d.left -= len(m.Content); d.left <= 0 {
				return own, merged
			}
			a, b := d.fieldsOf(m, what, depth+1)
			merged = append(append(merged, a...), b...)
		}
	}
	return own, merged
}

// target returns the node to which an alias refers, or n itself.
func target(n *yaml.Node) *yaml.Node {
	for range maxMerges {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}

// suggestion returns a hint that names the field that was probably meant, or all fields.
func suggestion(name string, names []string) string {
	if best := Suggestion(name, names); best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	return ": there are " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// listed returns the first few of many names.
func listed(names []string) string {
	const most = 6
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// Add adds the mistakes of a check. err is one error or several joined ones. path leads to the
// checked value; it consists of names of fields and numbers of entries. Below that value, the
// beginning of the message determines the position: "max wait 5s: ..." refers to the field
// max_wait, and "rules[2]: ..." to an entry. Each message gets the prefix before. Add leaves out a
// mistake if its value could not be read or a field is misspelt, because the mistake would only be
// a consequence.
func (d *Document) Add(before string, err error, path ...any) {
	for _, one := range Split(err) {
		n, at := d.find(path)
		if n != nil {
			var follows bool
			if _, at, follows = d.follow(n, at, one.Error()); follows {
				continue
			}
		}
		m := Mistake{What: before + one.Error()}
		if at != d.root { // the file as a whole has no position
			m.Line, m.Column = at.Line, at.Column
		}
		d.mistakes = append(d.mistakes, m)
	}
}

// Has reports whether the document has a value at a path.
func (d *Document) Has(path ...any) bool {
	n := d.root
	for _, step := range path {
		if n, _ = child(n, step); n == nil {
			return false
		}
	}
	return n != nil && n.ShortTag() != "!!null"
}

// Wrong reports whether the value at a path, or something in it, has a mistake.
func (d *Document) Wrong(path ...any) bool {
	n := d.root
	for _, step := range path {
		if n, _ = child(n, step); n == nil {
			return false
		}
	}
	return n != nil && d.isWrong(n, 0)
}

// Line returns the line on which the value at a path begins, or 0 if there is no value.
func (d *Document) Line(path ...any) int {
	n := d.root
	for _, step := range path {
		if n, _ = child(n, step); n == nil {
			return 0
		}
	}
	if n == nil {
		return 0
	}
	return n.Line
}

// Place returns the position of the value that a message is about, as in Add. It returns zeros if
// the position is unknown.
func (d *Document) Place(message string, path ...any) (line, column int) {
	n, at := d.find(path)
	if n == nil {
		return 0, 0
	}
	if _, at, _ = d.follow(n, at, message); at == nil {
		return 0, 0
	}
	return at.Line, at.Column
}

func (d *Document) isWrong(n *yaml.Node, depth int) bool {
	n = target(n)
	if d.wrong[n] || d.unknown[n] {
		return true
	}
	return depth < maxMerges && slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return d.isWrong(c, depth+1) })
}

// find returns the value at a path, as far as the path exists, and the node with its position. That
// node is the key of a field, or the beginning of an entry.
func (d *Document) find(path []any) (n, at *yaml.Node) {
	n, at = d.root, d.root
	for _, step := range path {
		next, place := child(n, step)
		if next == nil {
			break
		}
		n, at = next, place
	}
	return n, at
}

// child returns a field of a mapping or an entry of a list.
func child(n *yaml.Node, step any) (value, at *yaml.Node) {
	if n == nil {
		return nil, nil
	}
	switch s := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && s < len(n.Content) {
			return target(n.Content[s]), n.Content[s]
		}
	case string:
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == s {
				return target(n.Content[i+1]), n.Content[i]
			}
		}
	}
	return nil, nil
}

var (
	oneWord = regexp.MustCompile(`^([a-z][a-z_]*)(?:\[(\d+)\])?(:? |:?$)`)
	twoWord = regexp.MustCompile(`^([a-z]+) ([a-z]+)(:? |:?$)`)
)

// follow goes from a value to the value that the beginning of a message names. follows reports
// whether the message is a consequence of another mistake.
func (d *Document) follow(n, at *yaml.Node, message string) (value, place *yaml.Node, follows bool) {
	for n.Kind == yaml.MappingNode {
		var name, index string
		var rest string
		two, one := twoWord.FindStringSubmatch(message), oneWord.FindStringSubmatch(message)
		switch {
		case two != nil && slices.Contains(d.fields[n], two[1]+"_"+two[2]):
			name, rest = two[1]+"_"+two[2], message[len(two[0]):]
		case one != nil && slices.Contains(d.fields[n], one[1]):
			name, index, rest = one[1], one[2], message[len(one[0]):]
		default:
			return n, at, n != d.root && d.unknown[n] || d.wrong[n]
		}
		next, key := child(n, name)
		if next == nil {
			return n, at, d.unknown[n] // the misspelt field may be this field
		}
		n, at, message = next, key, rest
		if i, err := strconv.Atoi(index); err == nil {
			if next, entry := child(n, i); next != nil {
				n, at = next, entry
			}
		}
	}
	return n, at, d.isWrong(n, 0)
}
