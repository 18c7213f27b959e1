package broker

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"penstock/core/coord"
)

// A node's applications and queues are booked alike, each with entries of their own.

func openBook(t *coord.Totals) (book, error) {
	m, err := t.Join()
	return book{totals: t, member: m, named: map[string]int{}}, err
}

// name says which application or queue an entry is; each is one entry only.
func (k *book) name(i int, name string) error {
	if !utf8.ValidString(name) {
		return errors.New("its name is not valid UTF-8")
	}
	if at, there := k.named[name]; there && at != i {
		return fmt.Errorf("entry %d has the same name", at)
	}
	if _, err := k.totals.Name(k.member, i, name); err != nil {
		return err
	}
	for i >= len(k.sent) {
		k.sent = append(k.sent, sent{})
	}
	delete(k.named, k.sent[i].name)
	k.sent[i] = sent{name: name}
	if name != "" {
		k.named[name] = i
	}
	return nil
}

// report books what a report says of the entries.
func (k *book) report(entries []uint32, rates, rooms []uint64, most int) error {
	if len(entries) != len(rates) || len(entries) != len(rooms) || len(entries) > most {
		return fmt.Errorf("%d entries with %d rates and %d rooms: as many of each, and at most %d", len(entries), len(rates), len(rooms), most)
	}
	for i, e := range entries {
		if rates[i] > math.MaxInt64 || rooms[i] > math.MaxInt64 {
			return coord.ErrRate
		}
		if err := k.totals.Report(k.member, int(e), coord.Service{Rate: int64(rates[i]), Room: int64(rooms[i])}); err != nil {
			return fmt.Errorf("entry %d: %w", e, err)
		}
	}
	return nil
}

// news appends the totals that the node does not know yet, beside each other.
func (k *book) news(entries []uint32, rates, rooms []uint64) ([]uint32, []uint64, []uint64) {
	for i := range k.sent {
		at := &k.sent[i]
		if at.name == "" {
			continue
		}
		_, _, total, ok := k.totals.Entry(k.member, i)
		if !ok || total == at.total {
			continue
		}
		entries, rates, rooms = append(entries, uint32(i)), append(rates, uint64(total.Rate)), append(rooms, uint64(total.Room))
		at.total = total
	}
	return entries, rates, rooms
}
