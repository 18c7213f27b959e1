package broker

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"penstock/core/coord"
)

// A node's applications and queues are booked alike, each with entries of their own.

func newEntryTable(t *coord.Totals) (entryTable, error) {
	m, err := t.Join()
	return entryTable{totals: t, member: m, byName: map[string]int{}}, err
}

// name says which application or queue an entry is; each is one entry only.
func (k *entryTable) name(i int, name string) error {
	if !utf8.ValidString(name) {
		return errors.New("its name is not valid UTF-8")
	}
	if at, there := k.byName[name]; there && at != i {
		return fmt.Errorf("entry %d has the same name", at)
	}
	if _, err := k.totals.Name(k.member, i, name); err != nil {
		return err
	}
	for i >= len(k.sent) {
		k.sent = append(k.sent, sentEntry{})
	}
	delete(k.byName, k.sent[i].name)
	k.sent[i] = sentEntry{name: name}
	if name != "" {
		k.byName[name] = i
	}
	return nil
}

// figures are what a report or an answer says of entries, beside each other. Had and weights are
// of queues only.
type entryColumns struct {
	entries                    []uint32
	rates, rooms, had, weights []uint64
}

// report books what a report says of the entries, those of queues where they are some.
func (k *entryTable) report(f entryColumns, queues bool, most int) error {
	n := len(f.entries)
	if n != len(f.rates) || n != len(f.rooms) || n > most || queues && (n != len(f.had) || n != len(f.weights)) {
		return fmt.Errorf("%d entries with %d rates, %d rooms and, of queues, %d and %d of their members: as many of each, and at most %d",
			n, len(f.rates), len(f.rooms), len(f.had), len(f.weights), most)
	}
	for i, e := range f.entries {
		s := coord.Service{Rate: toInt64(f.rates[i]), Room: toInt64(f.rooms[i])}
		if queues {
			s.Had, s.Weight = toInt64(f.had[i]), toInt64(f.weights[i])
		}
		if err := k.totals.Report(k.member, int(e), s); err != nil {
			return fmt.Errorf("entry %d: %w", e, err)
		}
	}
	return nil
}

// whole is a number of the wire as a service has it; too large a one is below 0, and so refused.
func toInt64(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}

// news appends the totals that the node does not know yet.
func (k *entryTable) changes(f entryColumns, queues bool) entryColumns {
	f.entries, f.rates, f.rooms, f.had, f.weights = f.entries[:0], f.rates[:0], f.rooms[:0], f.had[:0], f.weights[:0]
	for i := range k.sent {
		at := &k.sent[i]
		if at.name == "" {
			continue
		}
		_, _, total, ok := k.totals.Entry(k.member, i)
		if !ok || total == at.total {
			continue
		}
		f.entries, f.rates, f.rooms = append(f.entries, uint32(i)), append(f.rates, uint64(total.Rate)), append(f.rooms, uint64(total.Room))
		if queues {
			f.had, f.weights = append(f.had, uint64(total.Had)), append(f.weights, uint64(total.Weight))
		}
		at.total = total
	}
	return f
}
