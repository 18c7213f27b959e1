package install

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// parseProperties reads spark-defaults.conf as Spark does, that is, as java.util.Properties does: a
// key ends at a blank, = or :, a backslash at the end of a line continues it on the next line, #
// and ! begin comments, and the last definition of a key is used. Spark trims values.
func parseProperties(text []byte) (*document, error) {
	if strings.IndexByte(string(text), 0) >= 0 {
		return nil, errors.New("has zero bytes; only encodings like UTF-8 can be edited")
	}
	doc := &document{format: sparkProperties, rooted: true}
	for at := 0; at < len(text); {
		start := skip(text, at, " \t\f")
		end := lineOf(text, start)
		if start == end || text[start] == '#' || text[start] == '!' {
			at = afterBreak(text, end)
			continue
		}
		for continues(text[start:end]) && end < len(text) {
			end = lineOf(text, afterBreak(text, end))
		}
		e, err := property(text[start:end])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", 1+strings.Count(string(text[:start]), "\n"), err)
		}
		e.start, e.end = start, end
		doc.entries = append(doc.entries, e)
		at = afterBreak(text, end)
	}
	return doc, nil
}

// property parses a logical line.
func property(line []byte) (entry, error) {
	keyEnd := 0
	for keyEnd < len(line) && strings.IndexByte(" \t\f=:\r\n", line[keyEnd]) < 0 {
		if line[keyEnd] == '\\' {
			keyEnd = joined(line, keyEnd)
		} else {
			keyEnd++
		}
	}
	value := blanks(line, keyEnd)
	if value < len(line) && (line[value] == '=' || line[value] == ':') {
		value = blanks(line, value+1)
	}
	key, err := unescape(line[:keyEnd])
	if err != nil {
		return entry{}, err
	}
	text, err := unescape(line[value:])
	return entry{key: key, value: strings.Trim(text, " \t\r\n\f\v"), valueAt: value}, err
}

// joined returns where a line continues after the backslash at i: after the escaped character, or
// after the line break and the next line's blanks.
func joined(line []byte, i int) int {
	if i+1 >= len(line) {
		return len(line)
	}
	if line[i+1] == '\r' || line[i+1] == '\n' {
		return skip(line, afterBreak(line, i+1), " \t\f")
	}
	return i + 2
}

// blanks skips white space and escaped line breaks.
func blanks(line []byte, i int) int {
	for i < len(line) {
		switch {
		case strings.IndexByte(" \t\f", line[i]) >= 0:
			i++
		case line[i] == '\\' && i+1 < len(line) && (line[i+1] == '\r' || line[i+1] == '\n'):
			i = joined(line, i)
		default:
			return i
		}
	}
	return len(line)
}

func unescape(raw []byte) (string, error) {
	var b strings.Builder
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			b.WriteByte(raw[i])
			i++
			continue
		}
		next := joined(raw, i)
		if i+1 < len(raw) && raw[i+1] != '\r' && raw[i+1] != '\n' {
			switch c := raw[i+1]; c {
			case 't':
				b.WriteByte('\t')
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 'f':
				b.WriteByte('\f')
			case 'u':
				r, err := strconv.ParseUint(string(raw[i+2:min(i+6, len(raw))]), 16, 16)
				if err != nil || len(raw) < i+6 {
					return "", errors.New(`\u without four digits`)
				}
				b.WriteRune(rune(r))
				next = i + 6
			default:
				b.WriteByte(c)
			}
		}
		i = next
	}
	return b.String(), nil
}

func skip(text []byte, i int, set string) int {
	for i < len(text) && strings.IndexByte(set, text[i]) >= 0 {
		i++
	}
	return i
}

// lineOf returns where the line at i ends, before its line break.
func lineOf(text []byte, i int) int {
	for i < len(text) && text[i] != '\n' && text[i] != '\r' {
		i++
	}
	return i
}

func afterBreak(text []byte, i int) int {
	if i+1 < len(text) && text[i] == '\r' && text[i+1] == '\n' {
		return i + 2
	}
	return min(i+1, len(text))
}

// continues reports whether a line ends in an odd number of backslashes.
func continues(line []byte) bool {
	n := 0
	for n < len(line) && line[len(line)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// propertyReplace returns the line with another value.
func propertyReplace(line, value string) string {
	e, err := property([]byte(line))
	if err != nil {
		return line // impossible: the same line was parsed before
	}
	head := line[:e.valueAt]
	if e.valueAt == len(line) && !strings.ContainsAny(line[max(0, len(line)-1):], " \t=:") {
		head += " "
	}
	return head + value
}

// propertyAppend returns the line with more appended to its value.
func propertyAppend(line, more string) string {
	e, err := property([]byte(line))
	if err != nil {
		return line
	}
	if e.value == "" {
		return propertyReplace(line, strings.TrimLeft(more, " "))
	}
	return line[:e.valueAt] + grown(line[e.valueAt:], more)
}

// grown appends more to the part of a raw value that Spark keeps. So it inserts more before
// trailing blanks, also escaped ones, and before trailing line breaks.
func grown(raw, more string) string {
	at := len(raw)
	for {
		before := at
		at = len(strings.TrimRight(raw[:at], " \t\f\r\n"))
		if continues([]byte(raw[:at])) {
			at--
		}
		if at == before {
			return raw[:at] + more + raw[at:]
		}
	}
}

// propertyBlock returns the text that defines properties at the end of a file.
func propertyBlock(text []byte, settings []setting) string {
	eol := lineEnd(text)
	var b strings.Builder
	if len(text) > 0 {
		if !strings.HasSuffix(string(text), "\n") {
			b.WriteString(eol)
		}
		b.WriteString(eol) // also ends a continued line
	}
	fmt.Fprintf(&b, "# %s%s", ourComment, eol)
	for _, s := range settings {
		fmt.Fprintf(&b, "%-40s %s%s", s.key, s.value, eol)
	}
	return b.String()
}

// lineEnd returns the line break that a file uses.
func lineEnd(text []byte) string {
	if i := strings.IndexByte(string(text), '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
