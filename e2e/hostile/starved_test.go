package hostile

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/wire"
)

const (
	starvedStreams = 2048
	threads        = 4096 // of the server, as HDFS has by default
	crowd          = "application_1700000000000_0667"
)

const starvedBytes = 32 * kib

// begins returns where a stream reads, in an order that causes many seeks.
func begins(stream uint32) int64 { return int64(stream) * 37 % starvedStreams * starvedBytes }

// served counts the streams that are past their beginning, and those that were refused.
func served(a *agent) (past, refused int) {
	a.seen(func(marks map[uint32]int64) {
		for stream, mark := range marks {
			if mark == wire.Refused {
				refused++
			} else if mark > begins(stream) {
				past++
			}
		}
	})
	return past, refused
}

// TestStarvedStreams: half of a server's threads wait for a flow of little weight, and declare that
// they cannot wait for long; the neighbour keeps its rate. Of the streams that may be refused, a
// flow gets a quarter of the threads. The others are refused at once.
func TestStarvedStreams(t *testing.T) {
	weights := fmt.Sprintf("default: 1\nrules:\n  - {application: %s, weight: 32}\n", neighbour)
	n := startNode(t, options{weights: weights})
	path := cold(t, filepath.Join(dataDir(0), "blk_9"), starvedStreams*starvedBytes, 0)
	setModel(t, 0, disk.HDD(disk.HDDRate))
	r := readOn(t, n, 0)
	r.window = 3 * time.Second // forced packets begin after the clients' patience, and come in bursts
	watch(t, n)
	open := func(flow string, i int, refusable bool) wire.Open {
		from := begins(uint32(i))
		return wire.Open{Stream: uint32(i), Direction: wire.Read, Flow: flow, Path: path, From: from, To: from + starvedBytes,
			Patience: 1000, Refusable: refusable}
	}
	var a *agent
	r.keepsItsRate(t, func() func() {
		var err error
		if a, err = connect(n.socket, server(0)); err != nil {
			t.Fatal(err)
		}
		for i := range starvedStreams {
			fixture.Must(t, a.say(open(attacker, i, false)))
		}
		fixture.Must(t, a.out.Flush())
		return func() {}
	})
	defer a.close()
	past, _ := served(a)
	t.Logf("%d of the starved streams were served meanwhile, %.0f of them forced", past, n.metric(t, "flow_forced_total", fmt.Sprintf("flow=%q", attacker)))

	b, err := connect(n.socket, server(0))
	fixture.Must(t, err)
	defer b.close()
	for i := range starvedStreams {
		fixture.Must(t, b.say(open(crowd, i, true)))
	}
	fixture.Must(t, b.out.Flush())
	refused := 0
	fixture.EventuallyWithin(t, "all streams past a quarter of the server's threads are refused", patience, func() bool {
		past, refused = served(b)
		return starvedStreams-refused-past <= threads/4
	})
	time.Sleep(settling)
	t.Logf("%d of %d streams that may be refused are, with %d threads", refused, starvedStreams, threads)
	if refused == 0 || refused > starvedStreams-threads/4 {
		t.Errorf("%d streams are refused, want at most %d", refused, starvedStreams-threads/4)
	}
}
