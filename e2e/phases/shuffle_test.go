package phases

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/node/status"
)

// TestLimitedShuffle: two TeraSorts at once, one with a limit. The limited one's map outputs leave
// the NodeManager no faster than the limit, the other's at full speed. No thread of Netty ever
// waits for either.
func TestLimitedShuffle(t *testing.T) {
	const (
		rows  = 450_000
		limit = 4 * fixture.MiB
	)
	ctx := shared.Begin(t, 8*time.Minute)
	shared.Remove(t, "/shuffle")
	want, err := shared.Hadoop.WriteRows(ctx, "/shuffle/input", hadoop.Rows{Rows: rows})
	fixture.Must(t, err)
	run := func(output, queue string) *hadoop.App {
		return shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/shuffle/input", Output: output, Queue: queue, Reduces: 2})
	}
	held := run("/shuffle/held", hadoop.QueueAggressor)
	shared.Weights(t, fmt.Sprintf("default: 10\nrules:\n  - {application: %s, limit: %d}\n", held.ID, limit))
	free := run("/shuffle/free", hadoop.QueueProtected)

	watched, series := make(chan string, 1), make(chan []sample, 1)
	stop := make(chan struct{})
	go func() { watched <- parked(shared.Hadoop.NodeManagerURL(0), stop) }()
	go func() { series <- sent(shared.Nodes[0].Address, held.ID, stop) }()
	var seconds [2]time.Duration
	for i, app := range []*hadoop.App{free, held} {
		s, err := app.Wait(ctx)
		fixture.Must(t, err)
		seconds[i] = s.Elapsed
	}
	close(stop)
	if stack := <-watched; stack != "" {
		t.Errorf("a thread of Netty waits for a gate:\n%s", stack)
	}
	rate := steady(<-series)
	t.Logf("the limited job sent %.3f MiB/s", rate/fixture.MiB)
	if rate < 0.95*limit || rate > 1.05*limit {
		t.Errorf("the limited job sent %.3f MiB/s, its limit is %d MiB/s", rate/fixture.MiB, limit/fixture.MiB)
	}
	// The limited job's bytes to and from the disk alone take this long.
	doc := shared.Look(t)
	var device int64
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			if f.Name == held.ID && d.Name != "network" {
				device += f.Bytes.Read + f.Bytes.Written
			}
		}
	}
	least := time.Duration(float64(device) / limit * float64(time.Second))
	t.Logf("unlimited: %v; limited to 4 MiB/s: %v for %.1f MiB of the device", seconds[0], seconds[1], float64(device)/fixture.MiB)
	if seconds[1] < least*9/10 {
		t.Errorf("the limited TeraSort moved %d bytes in %v: at its limit they take %v", device, seconds[1], least)
	}
	if seconds[0] > seconds[1]*3/4 {
		t.Errorf("the other one took %v, and the limited one %v", seconds[0], seconds[1])
	}
	for _, output := range []string{"/shuffle/held", "/shuffle/free"} {
		if got, err := shared.Hadoop.VerifyRows(ctx, output, rows, false); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", output, got, err, want)
		}
	}
}

// sample is how many bytes the NodeManager had sent for an application at a moment.
type sample struct {
	at    time.Time
	bytes int64
}

// sent records how many bytes the NodeManager has sent for an application, until stop is closed.
func sent(daemon, application string, stop chan struct{}) (series []sample) {
	for {
		select {
		case <-stop:
			return series
		case <-time.After(200 * time.Millisecond):
		}
		if doc, err := status.Fetch(context.Background(), daemon); err == nil {
			series = append(series, sample{doc.Time, fixture.Streamed(doc, application, "network").Written})
		}
	}
}

// steady returns the rate, in bytes per second, from a tenth to nine tenths of all bytes.
func steady(series []sample) float64 {
	if len(series) == 0 {
		return 0
	}
	all := series[len(series)-1].bytes
	var from, to sample
	for _, s := range series {
		if from.at.IsZero() && s.bytes*10 >= all {
			from = s
		}
		if to.at.IsZero() && s.bytes*10 >= all*9 {
			to = s
		}
	}
	return float64(to.bytes-from.bytes) / to.at.Sub(from.at).Seconds()
}

// parked watches the NodeManager's threads until stop is closed. It returns the stack of a Netty
// thread that waited in Penstock's gates, or an empty string.
func parked(url string, stop chan struct{}) string {
	for {
		select {
		case <-stop:
			return ""
		case <-time.After(200 * time.Millisecond):
		}
		resp, err := http.Get(url + "/stacks")
		if err != nil {
			return err.Error()
		}
		page, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Sprint(resp.Status, err)
		}
		for _, thread := range strings.Split(string(page), "\nThread ") {
			if strings.Contains(thread, "io.netty.channel") && strings.Contains(thread, "penstock.core.Gates") &&
				(strings.Contains(thread, "State: WAITING") || strings.Contains(thread, "State: TIMED_WAITING")) {
				return thread
			}
		}
	}
}
