package top

import (
	"fmt"
	"strings"
	"testing"

	"penstock/node/status"
	"penstock/ops/screen"
)

func withForeigners() *status.Document {
	doc := sample()
	doc.Devices[0].ForeignUsers = status.ForeignUsers{Seconds: 5, Top: []status.ForeignUser{
		{Name: "fio\x1b", PID: 812, Cgroup: "/system.slice/" + strings.Repeat("deep/", 20) + "fio.service", Window: status.Pair{Read: 50 * mb, Written: 5 * mb}},
		{Name: "kworker", Window: status.Pair{Written: 100 * mb}},
		{Name: "idle", PID: 1, Cgroup: "/", Bytes: status.Pair{Read: 9 * mb}},
	}}
	return doc
}

func TestForeignUsers(t *testing.T) {
	const want = `
FOREIGN USER  PID     DEVICE  OWNER                                                  READ    WRITTEN
kworker       kernel  sdb     -                                                  0.0 MiB/s  20.0 MiB/s
fio?          812     sdb     ...eep/deep/deep/deep/deep/deep/deep/fio.service  10.0 MiB/s   1.0 MiB/s
`
	got := Text(withForeigners(), "x", Selection{Sort: "share"}, nil, 80)
	_, got, _ = strings.Cut(got, "\n\nFOREIGN")
	if strings.Join(strings.Fields("FOREIGN"+got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\nFOREIGN%s", got)
	}
	early := withForeigners()
	early.Devices[0].ForeignUsers.Seconds = 0
	if got := Text(early, "x", Selection{Sort: "share"}, nil, 80); strings.Contains(got, "FOREIGN USER") {
		t.Errorf("rates without a window:\n%s", got)
	}
	many := withForeigners()
	for i := range 30 {
		many.Devices[0].ForeignUsers.Top = append(many.Devices[0].ForeignUsers.Top, status.ForeignUser{Name: fmt.Sprint("p", i), PID: 1, Window: status.Pair{Read: 1}})
	}
	if got := foreigners(many, 10, 200); len(got) != 11 {
		t.Errorf("%d lines", len(got))
	}
}

// The lines fit on a screen of any height.
func TestTheDevicesViewShowsForeignUsers(t *testing.T) {
	doc := withForeigners()
	for height := range 40 {
		s := open(t, 140, height)
		s.send(screen.Answer[*status.Document]{Doc: doc})
		s.keys("d")
		if got := strings.Count(s.view(), "\n"); got > max(0, height-1) {
			t.Errorf("height %d: %d lines", height, got+1)
		}
		if height >= 12 {
			s.shows(true, "FOREIGN USER", "kworker", "20.0 MiB/s", "q quit")
		}
	}
}
