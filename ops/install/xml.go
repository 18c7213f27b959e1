package install

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// parseXML reads one of Hadoop's *-site.xml the way Hadoop's Configuration does: elements are known
// by their local name at any depth, a property's last name and value are used, an empty value
// counts as missing, and an include is replaced by the content of its file.
//
// The decoder reports at which byte a token begins and ends. Only these positions are used for
// writing: a change replaces the text between them.
func parseXML(text []byte, include func(href string) ([]byte, error)) (*document, error) {
	return parseXMLAt(text, include, 0)
}

// includesMax is the greatest depth of included files.
const includesMax = 8

// definition is a property element as far as it has been read.
type definition struct {
	open        bool
	name, value string
	final       bool
	start, end  int // of the value's element or attribute; -1 if it has none
	token       strings.Builder
	fieldStart  int // of the current element
}

func parseXMLAt(text []byte, include func(string) ([]byte, error), depth int) (*document, error) {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("has zero bytes; only encodings like UTF-8 and ISO-8859 can be edited")
	}
	if depth > includesMax {
		return nil, fmt.Errorf("files include each other more than %d deep", includesMax)
	}
	doc := &document{format: hadoopXML}
	// Positions have to be right in any encoding, and only ASCII bytes matter here.
	plain := bytes.Clone(text)
	for i, b := range plain {
		if b >= 0x80 {
			plain[i] = '?'
		}
	}
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		copy(plain, "   ")
	}
	d := xml.NewDecoder(bytes.NewReader(plain))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var def definition
	var depthNow, fallbacks int
	var fallbackSeen bool
	var includeErr error // why the open include element's file could not be read
	for {
		start := int(d.InputOffset())
		token, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		switch t := token.(type) {
		case xml.Directive:
			if bytes.Contains(t, []byte("ENTITY")) {
				return nil, errors.New("declares entities, which are not followed here")
			}
		case xml.StartElement:
			depthNow++
			if depthNow == 1 {
				if doc.rooted {
					return nil, errors.New("has more than one root element")
				}
				if t.Name.Local != "configuration" {
					return nil, fmt.Errorf("its root is <%s>, not <configuration>", t.Name.Local)
				}
				doc.rooted = true
				doc.open, doc.rootName = end, rawName(t.Name)
				doc.empty = bytes.HasSuffix(plain[start:end], []byte("/>"))
				doc.rootStart = start
			}
			doc.path = append(doc.path, rawName(t.Name))
			switch t.Name.Local {
			case "property":
				def = definition{open: true, start: -1, end: -1}
				def.attributes(t, plain, start, end)
			case "name", "value", "final":
				def.fieldStart = start
				def.token.Reset()
			case "include":
				var items []entry
				items, includeErr = included(t, include, depth)
				fallbackSeen = false
				doc.entries = append(doc.entries, items...)
			case "fallback":
				fallbacks++
				fallbackSeen = true
			}
		case xml.CharData:
			def.token.Write(t)
		case xml.EndElement:
			depthNow--
			if len(doc.path) == 0 || doc.path[len(doc.path)-1] != rawName(t.Name) {
				return nil, fmt.Errorf("</%s> closes nothing that is open", rawName(t.Name))
			}
			doc.path = doc.path[:len(doc.path)-1]
			if depthNow == 0 {
				doc.close = start
			}
			switch t.Name.Local {
			case "name", "value", "final":
				def.finish(t.Name.Local, end)
			case "property":
				// A final property without a value is not set, but later files cannot set it
				// either.
				if def.open && def.name != "" && (def.start >= 0 || def.final) && (fallbacks == 0 || includeErr != nil) {
					doc.entries = append(doc.entries, entry{key: def.name, value: def.value, final: def.final, start: def.start, end: def.end})
				}
				def.open = false
			case "fallback":
				fallbacks--
			case "include":
				if includeErr != nil && !fallbackSeen {
					return nil, fmt.Errorf("includes a file that cannot be read here, and may be set in that file: %w", includeErr)
				}
				includeErr = nil
			}
		}
	}
	if len(doc.path) > 0 {
		return nil, fmt.Errorf("<%s> is not closed", doc.path[len(doc.path)-1])
	}
	if !doc.rooted && len(bytes.TrimSpace(plain)) > 0 {
		return nil, errors.New("has no root element")
	}
	return doc, nil
}

// finish stores the content of an element of a property.
func (d *definition) finish(field string, end int) {
	text := d.token.String()
	switch {
	case field == "final":
		d.final = text == "true"
	case text == "": // Hadoop ignores it
	case field == "name":
		d.name = strings.TrimSpace(text)
	case field == "value":
		d.value, d.start, d.end = text, d.fieldStart, end
	}
}

var attribute = regexp.MustCompile(`([^\s=/<>"']+)\s*=\s*("[^"]*"|'[^']*')`)

// attributes reads Hadoop's short form, <property name="..." value="..."/>.
func (d *definition) attributes(t xml.StartElement, plain []byte, start, end int) {
	for _, a := range t.Attr {
		switch a.Name.Local {
		case "name":
			d.name = a.Value
		case "final":
			d.final = a.Value == "true"
		case "value":
			d.value = a.Value
			for _, m := range attribute.FindAllSubmatchIndex(plain[start:end], -1) {
				if string(plain[start+m[2]:start+m[3]]) == rawName(a.Name) {
					d.start, d.end = start+m[0], start+m[1]
				}
			}
		}
	}
}

func rawName(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

// included reads the file that an include element names; the entries have no position in the
// including file.
func included(t xml.StartElement, include func(string) ([]byte, error), depth int) ([]entry, error) {
	for _, a := range t.Attr {
		if a.Name.Local != "href" {
			continue
		}
		text, err := include(a.Value)
		if err != nil {
			return nil, err
		}
		doc, err := parseXMLAt(text, include, depth+1)
		if err != nil {
			return nil, err
		}
		for i := range doc.entries {
			doc.entries[i].start, doc.entries[i].end = -1, -1
		}
		return doc.entries, nil
	}
	return nil, nil
}

// xmlReplace returns an entry's text with another value.
func xmlReplace(old, value string) string {
	if name, rest, ok := strings.Cut(old, "="); ok && !strings.HasPrefix(old, "<") {
		rest = strings.TrimLeft(rest, " \t\r\n")
		return name + "=" + rest[:1] + escape(value) + rest[:1]
	}
	tag, _, _ := strings.Cut(old, ">")
	name := strings.Fields(strings.Trim(tag, "<>/ \t\r\n"))[0]
	return "<" + name + ">" + escape(value) + "</" + name + ">"
}

// xmlAppend appends more to an entry's value and leaves the rest of its text as it is.
func xmlAppend(old, more string) string {
	at := strings.LastIndex(old, "</")
	if !strings.HasPrefix(old, "<") {
		at = len(old) - 1 // an attribute's closing quote
	}
	body := strings.TrimRight(old[:at], " \t\r\n")
	return body + escape(more) + old[len(body):]
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(s)
}

// xmlSkeleton returns the initial text of a missing or empty file.
func xmlSkeleton(eol string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>` + eol + "<configuration>" + eol + "</configuration>" + eol
}

var indented = regexp.MustCompile(`(?:^|\n)([ \t]+)<property[\s>]`)

// xmlBlock returns the text that defines properties at the end of the document, and its position.
// The document must not be an empty element.
func xmlBlock(text []byte, doc *document, settings []setting) (at int, block string) {
	eol, indent := lineEnd(text), "  "
	for i, m := range indented.FindAllSubmatch(text, -1) {
		if i == 0 || len(m[1]) < len(indent) {
			indent = string(m[1])
		}
	}
	var b strings.Builder
	at = doc.close
	line := at // where the line of </configuration> begins, if nothing else is on it
	for line > 0 && (text[line-1] == ' ' || text[line-1] == '\t') {
		line--
	}
	if line > 0 && text[line-1] == '\n' {
		at = line
	} else {
		b.WriteString(eol)
	}
	fmt.Fprintf(&b, "%s<!-- %s -->%s", indent, ourComment, eol)
	for _, s := range settings {
		fmt.Fprintf(&b, "%s<property>%s%s%s<name>%s</name>%s%s%s<value>%s</value>%s%s</property>%s",
			indent, eol, indent, indent, escape(s.key), eol, indent, indent, escape(s.value), eol, indent, eol)
	}
	return at, b.String()
}
