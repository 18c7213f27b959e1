package forecast

import (
	"container/list"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a History.
const (
	MaxKinds = 1000 // those that were used last are kept
	// MaxKindsOfUser is the number of kinds of one user, so that a user who makes up names of applications does not displace the others' history.
	MaxKindsOfUser = 100
	maxWord        = 128 // bytes of each text of a Kind
	longNumber     = 3   // digits of a number that differs from run to run
)

// Kind is the kind of an application: applications of one kind are runs of the same program, on other data or at another time.
// The user is part of the kind, so the progress that an application reports changes no other user's forecasts, provided that the cluster
// manager authenticates users.
type Kind struct{ Framework, User, Name string }

// KindOf returns the kind of an application: its framework, its user, and its name without what differs from run to run. A word that begins with a
// digit becomes #, and so does one of eight or more hexadecimal digits of which at least one is no letter. In all other words, three or more
// digits in a row become #. Several # in a row become one. So "report-2026-11-25T06:00" and "report-2026-11-26T06:00" are of one kind,
// and "q3" and "q21" are of two. Letters count as lower case. known is false if nothing else than # remains of the name.
func KindOf(framework, user, name string) (kind Kind, known bool) {
	kind = Kind{clipped(framework), clipped(user), normalised(name)}
	return kind, strings.Trim(kind.Name, "# ") != "" && kind.Framework != ""
}

func clipped(text string) string {
	if len(text) > maxWord {
		text = text[:maxWord]
		for !utf8.ValidString(text) && len(text) > maxWord-utf8.UTFMax {
			text = text[:len(text)-1]
		}
	}
	return strings.Clone(strings.ToValidUTF8(text, "?"))
}

// normalised returns a name without what differs from run to run. Its cost is linear in the first 8 × maxWord bytes.
func normalised(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), 8*maxWord)], "?")
	var out strings.Builder
	separators := ""  // punctuation that was read and not yet written
	numbered := false // the last word was written as #
	for rest := name; rest != "" && out.Len() < maxWord; {
		word := rest
		if end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }); end >= 0 {
			word = rest[:end]
		}
		rest = rest[len(word):]
		switch word = withoutNumbers(word); {
		case word == "":
		case word == "#" && numbered:
			separators = ""
		default:
			out.WriteString(separators + word)
			separators, numbered = "", word == "#"
		}
		if rest != "" {
			r, size := utf8.DecodeRuneInString(rest)
			if rest = rest[size:]; !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				if unicode.IsSpace(r) || unicode.IsControl(r) {
					r = ' '
				}
				if !strings.HasSuffix(separators, string(r)) && len(separators) < 4*utf8.UTFMax {
					separators += string(r)
				}
			}
		}
	}
	return clipped(strings.TrimSpace(out.String()))
}

// withoutNumbers returns a word of letters and digits as KindOf describes it.
func withoutNumbers(word string) string {
	word = strings.ToLower(word)
	if first, _ := utf8.DecodeRuneInString(word); unicode.IsDigit(first) || len(word) >= 8 && strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789abcdef") == "" {
		return "#"
	}
	var out strings.Builder
	for rest := word; rest != ""; {
		letters := len(rest)
		if at := strings.IndexFunc(rest, unicode.IsDigit); at >= 0 {
			letters = at
		}
		digits := len(rest) - letters
		if at := strings.IndexFunc(rest[letters:], func(r rune) bool { return !unicode.IsDigit(r) }); at >= 0 {
			digits = at
		}
		out.WriteString(rest[:letters])
		if number := rest[letters : letters+digits]; utf8.RuneCountInString(number) >= longNumber {
			out.WriteString("#")
		} else {
			out.WriteString(number)
		}
		rest = rest[letters+digits:]
	}
	return out.String()
}

// History keeps a curve for each kind of application. Its zero value is ready for use. Its memory is bounded: about 3 KB for each of
// MaxKinds. Entries and Restore carry it over to another program.
type History struct {
	kinds  map[Kind]*list.Element // values are *learned
	order  list.List              // last used first
	byUser map[string]int
}

type learned struct {
	kind  Kind
	curve *Curve
}

// Len returns the number of kinds.
func (h *History) Len() int { return h.order.Len() }

// Curve returns what is known of a kind; nil: nothing.
func (h *History) Curve(k Kind) *Curve {
	e := h.kinds[k]
	if e == nil {
		return nil
	}
	h.order.MoveToFront(e)
	return e.Value.(*learned).curve
}

// Learn adds a run that has ended well at the time, on the clock of its observations. Learn reports whether it has added the run: the
// run must have been observed over at least half of its progress.
func (h *History) Learn(k Kind, t *Trace, at time.Duration) bool {
	curve := h.Curve(k).with(t, at)
	if curve == nil {
		return false
	}
	h.put(k, curve)
	return true
}

// put stores a kind's curve, and drops the kinds that were not used for the longest time.
func (h *History) put(k Kind, curve *Curve) {
	if e := h.kinds[k]; e != nil {
		e.Value.(*learned).curve = curve
		h.order.MoveToFront(e)
		return
	}
	if h.kinds == nil {
		h.kinds, h.byUser = map[Kind]*list.Element{}, map[string]int{}
	}
	if h.byUser[k.User] >= MaxKindsOfUser {
		for e := h.order.Back(); e != nil; e = e.Prev() {
			if e.Value.(*learned).kind.User == k.User {
				h.drop(e)
				break
			}
		}
	}
	if h.order.Len() >= MaxKinds {
		h.drop(h.order.Back())
	}
	h.kinds[k] = h.order.PushFront(&learned{k, curve})
	h.byUser[k.User]++
}

func (h *History) drop(e *list.Element) {
	k := e.Value.(*learned).kind
	h.order.Remove(e)
	delete(h.kinds, k)
	if h.byUser[k.User]--; h.byUser[k.User] == 0 {
		delete(h.byUser, k.User)
	}
}
