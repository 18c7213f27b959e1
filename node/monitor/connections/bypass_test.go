package connections

import (
	"testing"
	"time"
)

func TestBypassedBytesCount(t *testing.T) {
	k := &kernel{all: []Socket{
		{Server: address(1, 9866), Client: address(2, 1), Sent: 100, Received: 10, Cookie: 7},
		{Server: address(1, 9866), Client: address(2, 2), Sent: 50, Cookie: 8},
	}}
	w := watch(k)
	bypass := map[uint64]Bypass{7: {Sent: 1000, Received: 2000}}
	w.CountBypass(func() map[uint64]Bypass { return bypass })
	w.NewAgent(1).Opened(address(1, 9866).String(), address(2, 1).String(), "a", "", false).Close()
	now := time.Unix(1000, 0)
	for _, want := range []Connection{
		{Socket: Socket{Sent: 1100, Received: 2010}},
		{Socket: Socket{Sent: 1600, Received: 2010}, SentRate: 500},
	} {
		if err := w.Look(now); err != nil {
			t.Fatal(err)
		}
		all := w.Snapshot(10).Top
		c := all[0]
		if c.Sent != want.Sent || c.Received != want.Received || c.SentRate != want.SentRate || all[1].Sent != 50 {
			t.Errorf("%+v", all)
		}
		bypass = map[uint64]Bypass{7: {Sent: 1500, Received: 2000}}
		now = now.Add(time.Second)
	}
}
