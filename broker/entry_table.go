package broker

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"penstock/core/coord"
)

// The applications of a node are stored in one table, and its queues in another table of the same
// type.

func newEntryTable(t *coord.Totals) (entryTable, error) {
	m, err := t.Join()
	return entryTable{totals: t, member: m, byName: map[string]int{}}, err
}

// name sets the application or queue that entry i stands for. No two entries have the same name.
func (k *entryTable) name(i int, name string) error {
	if !utf8.ValidString(name) {
		return errors.New("the name is not valid UTF-8")
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

// entryColumns are the parallel lists of a report or an answer. had and weights are used for
// queues only, and the others for a report's applications; they are empty if an older node reports.
type entryColumns struct {
	entries                           []uint32
	rates, rooms, had, weights, bytes []uint64
	streams, waiting, hindered        []uint64
	used, touched                     []uint64
	hungry                            []bool
}

// report enters a report's entries into the totals. most is the maximum number of entries.
func (k *entryTable) report(f entryColumns, queues bool, most int) error {
	n := len(f.entries)
	if n != len(f.rates) || n != len(f.rooms) || n > most || queues && (n != len(f.had) || n != len(f.weights)) {
		return fmt.Errorf("lists of %d entries, %d rates, %d rooms, %d had and %d weights: they must be of equal length, at most %d",
			n, len(f.rates), len(f.rooms), len(f.had), len(f.weights), most)
	}
	if len(f.bytes) != len(f.hungry) || len(f.bytes) > 0 && len(f.bytes) != n {
		return fmt.Errorf("lists of %d entries, %d bytes and %d hungry: they must be of equal length", n, len(f.bytes), len(f.hungry))
	}
	if s := len(f.streams); s != len(f.waiting) || s != len(f.hindered) || s != len(f.used) || s != len(f.touched) || s > 0 && s != n {
		return fmt.Errorf("lists of %d entries, %d streams, %d waiting, %d hindered, %d used and %d touched: they must be of equal length",
			n, s, len(f.waiting), len(f.hindered), len(f.used), len(f.touched))
	}
	for i, e := range f.entries {
		s := coord.Service{Rate: toInt64(f.rates[i]), Room: toInt64(f.rooms[i])}
		if queues {
			s.Had, s.Weight = toInt64(f.had[i]), toInt64(f.weights[i])
		}
		if len(f.bytes) > 0 {
			s.Bytes = toInt64(f.bytes[i])
			if f.hungry[i] {
				s.Hungry = 1
			}
		}
		if len(f.streams) > 0 {
			s.Streams, s.Waiting, s.Hindered = toInt64(f.streams[i]), toInt64(f.waiting[i]), toInt64(f.hindered[i])
			s.Used, s.Touched = toInt64(f.used[i]), toInt64(f.touched[i])
		}
		if err := k.totals.Report(k.member, int(e), s); err != nil {
			return fmt.Errorf("entry %d: %w", e, err)
		}
	}
	return nil
}

// toInt64 converts a number from the wire. A number that is too large becomes negative, which
// Totals refuses.
func toInt64(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}

// changes returns the totals that have changed since they were last sent to the node. It reuses
// the slices of f.
func (k *entryTable) changes(f entryColumns, queues bool) entryColumns {
	f.entries, f.rates, f.rooms, f.had, f.weights = f.entries[:0], f.rates[:0], f.rooms[:0], f.had[:0], f.weights[:0]
	for i := range k.sent {
		at := &k.sent[i]
		if at.name == "" {
			continue
		}
		_, _, total, ok := k.totals.Entry(k.member, i)
		total.Bytes, total.Hungry = 0, 0 // not for nodes
		total.Streams, total.Waiting, total.Hindered, total.Used, total.Touched = 0, 0, 0, 0, 0
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
