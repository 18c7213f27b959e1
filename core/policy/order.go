package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"penstock/core/shortest"
)

// Shortest is the value of Queue.Order with which the applications of a queue are ordered by their remaining work
// (package shortest).
const Shortest = "shortest"

// SizeTag is the prefix of a tag with which a submitter states the size of an application's I/O, such as
// io.size=40g: the bytes that it reads and writes on all devices.
const SizeTag = "io.size="

func (p *Policy) validateOrders(add func(at, field, format string, args ...any)) {
	for i, q := range p.Queues {
		at := "queues[" + strconv.Itoa(i) + "]"
		switch q.Order {
		case "":
			if len(q.Slices.Percent) > 0 || q.Slices.Floor != 0 {
				add(at, "slices", "slices and floor apply to an ordered queue only: add \"order: %s\" to queue %q", Shortest, clip(q.Path))
			}
			continue
		case Shortest:
		default:
			hint := "use " + Shortest
			if len(q.Order) < 3*len(Shortest) && near(q.Order) {
				hint = "did you mean " + Shortest + "?"
			}
			add(at, "order", "order %q of queue %q: %s", clip(q.Order), clip(q.Path), hint)
			continue
		}
		if q.Slices.Floor < shortest.MinFloor {
			add(at, "floor", "floor %d %%: use %d to %d, so that no application of queue %q starves", q.Slices.Floor, shortest.MinFloor, shortest.MaxFloor, clip(q.Path))
		} else if err := q.Slices.Validate(); err != nil {
			add(at, "slices", "%v", err)
		}
		for _, o := range p.Queues {
			if strings.HasPrefix(o.Path, q.Path+".") {
				add(at, "order", "order of queue %q: queue %q is below it, and only a queue without listed queues below it can be ordered: give the order to %q", clip(q.Path), clip(o.Path), clip(o.Path))
				break
			}
		}
		if k := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.Group != "" && r.GroupQueue == q.Path }); k >= 0 {
			add(at, "order", "order of queue %q: rules[%d] puts the group %q into it, and a group has no remaining work: use another group_queue", clip(q.Path), k, clip(p.Rules[k].Group))
		}
	}
}

// near reports whether a word is probably meant to be Shortest.
func near(word string) bool {
	word = strings.ToLower(strings.TrimSpace(word))
	return strings.HasPrefix(word, "short") || strings.HasPrefix(word, "sjf") || strings.HasPrefix(word, "srpt") || strings.HasPrefix(word, "fsp") ||
		len(word) > 5 && !strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(Shortest, r) })
}

// OrderOf returns the slices of a grant's queue, and whether its applications are ordered by their remaining work.
func (p *Policy) OrderOf(g Grant) (shortest.Slices, bool) {
	if g.Group != "" || len(p.orders) == 0 {
		return shortest.Slices{}, false
	}
	s, ordered := p.orders[g.Queue]
	return s, ordered
}

// Ordered reports whether the applications of the queue with this path are ordered by their remaining work.
func (p *Policy) Ordered(path string) bool {
	_, ordered := p.orders[path]
	return ordered
}

// statedSize returns the size that an application's tags state, in bytes; 0: none. If several tags state
// sizes, it returns the largest, since an application gains nothing from a small one then.
func statedSize(tags []string) int64 {
	size := int64(0)
	for _, tag := range tags {
		if text, found := strings.CutPrefix(tag, SizeTag); found {
			size = max(size, parseSize(text))
		}
	}
	return size
}

// parseSize parses a number of bytes such as 40g, 512MiB or 1.5t; 0 if it is none. YARN stores tags in lower
// case. Units are binary.
func parseSize(text string) int64 {
	text = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(text), "b"), "i")
	unit := 1.0
	if n := len(text); n > 0 {
		if i := strings.IndexByte("kmgtp", text[n-1]); i >= 0 {
			unit, text = math.Pow(1024, float64(i+1)), text[:n-1]
		}
	}
	if strings.Trim(text, "0123456789.") != "" || len(text) > 20 {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || v*unit > 1<<60 {
		return 0
	}
	return int64(v * unit)
}
