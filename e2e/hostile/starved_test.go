package hostile

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"penstock/testbed/disk"
	"penstock/wire"
)

const (
	starvedStreams = 2048
	threads        = 4096 // of the server, as HDFS has by default
	crowd          = "application_1700000000000_0667"
)

// TestStarvedStreams: half of a server's threads wait for a flow of little weight, and say
// that they bear no wait; the neighbour keeps its rate. Of those that can be refused, a flow
// has a quarter of the threads, and the others are refused at once.
func TestStarvedStreams(t *testing.T) {
	weights := fmt.Sprintf("default: 1\nrules:\n  - {application: %s, weight: 32}\n", neighbour)
	n := startNode(t, options{weights: weights})
	const each = 32 * kib
	path := cold(t, filepath.Join(dataDir(0), "blk_9"), starvedStreams*each, 0)
	setModel(t, 0, disk.HDD(disk.HDDRate))
	r := readOn(t, n, 0)
	watch(t, n)
	open := func(flow string, i int, refusable bool) wire.Open {
		from := int64(i) * 37 % starvedStreams * each // no order that a disk would like
		return wire.Open{Stream: uint32(i), Direction: wire.Read, Flow: flow, Path: path, From: from, To: from + each,
			Patience: 1000, Refusable: refusable}
	}
	var a *agent
	r.keepsItsRate(t, func() func() {
		var err error
		if a, err = connect(n.socket, server(0)); err != nil {
			t.Fatal(err)
		}
		for i := range starvedStreams {
			if err := a.say(open(attacker, i, false)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.out.Flush(); err != nil {
			t.Fatal(err)
		}
		return func() {}
	})
	defer a.close()
	served := 0
	a.seen(func(marks map[uint32]int64) { served = len(marks) })
	t.Logf("%d of the starved streams were served meanwhile, %.0f of them forced", served, n.metric(t, "flow_forced_total", fmt.Sprintf("flow=%q", attacker)))

	b, err := connect(n.socket, server(0))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for i := range starvedStreams {
		if err := b.say(open(crowd, i, true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.out.Flush(); err != nil {
		t.Fatal(err)
	}
	refused := 0
	eventually(t, "all streams past a quarter of the server's threads are refused", patience, func() bool {
		refused = 0
		marked := 0
		b.seen(func(marks map[uint32]int64) {
			for _, mark := range marks {
				if mark == wire.Refused {
					refused++
				} else if mark > 0 {
					marked++
				}
			}
		})
		return starvedStreams-refused-marked <= threads/4
	})
	time.Sleep(settling)
	t.Logf("%d of %d streams that may be refused are, with %d threads", refused, starvedStreams, threads)
	if refused == 0 || refused > starvedStreams-threads/4 {
		t.Errorf("%d streams are refused, want at most %d", refused, starvedStreams-threads/4)
	}
}
