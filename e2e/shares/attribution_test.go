package shares

import (
	"context"
	"fmt"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
)

// settled waits until nothing is queued, backlogged or in flight, so that all I/O has been
// attributed.
func (c *cluster) settled(t *testing.T) metrics {
	t.Helper()
	var settled metrics
	err := c.node.await(t.Context(), "at rest", func(m metrics) error {
		settled = m
		for _, busy := range []string{"device_outstanding", "device_backlog_bytes", "flow_queued_requests"} {
			if n := m.Sum(busy); n > 0 {
				return fmt.Errorf("%s is %v", busy, n)
			}
		}
		return nil
	})
	fixture.Must(t, err)
	return settled
}

// TestResidentReadsAreFree: reads from the page cache cost neither the device nor the application
// anything.
func TestResidentReadsAreFree(t *testing.T) {
	const size = 32 * mib
	c := start(t)
	c.write(t, "/resident", size)
	c.forget(t)
	flow := application(41)
	read := func() (device, charged, service, resident float64) {
		before, from := c.settled(t), disk.Monotonic()
		c.cat(t, 41, "/resident").finish(t)
		after := c.settled(t)
		got := func(name string) float64 { return after.flow(name, flow) - before.flow(name, flow) }
		a := c.judge(t, c.owners(t, map[string][]string{flow: {"/resident"}}), judge.Window{From: from, To: disk.Monotonic()})[0]
		return float64(a.Owners[flow].ReadBytes), got("bytes_total"), got("service_seconds_total"), got("resident_bytes_total")
	}
	device, charged, service, _ := read()
	within(t, "bytes of the first read", 2, charged, device)
	if device < size || device > size*1.02 || service == 0 {
		t.Errorf("the first read of %d bytes moved %.0f, charged as %.0f s of service", size, device, service)
	}
	device, charged, service, resident := read()
	t.Logf("the second read moved %.0f bytes; charged: %.0f bytes, %g s of service", device, charged, service)
	// The kernel may have evicted some pages in between. On some machines this happens at any time
	// and in any place of a file: vmstat's workingset_refault_file grows, though nothing is
	// scanned. Reads of these pages are charged.
	if device > size/20 || charged != device || (service != 0) != (charged != 0) {
		t.Errorf("the second read moved %.0f bytes; charged: %.0f bytes, %g s of service", device, charged, service)
	}
	if resident != size-charged {
		t.Errorf("the second read counted %.0f bytes as resident, want %.0f", resident, size-charged)
	}
}

// TestTwoJobsAreToldApart: two MapReduce jobs run at once, one that writes and one that reads. The
// bytes of each are charged to that job.
func TestTwoJobsAreToldApart(t *testing.T) {
	const (
		rows  = 1_500_000
		input = 2 * 64 * mib
		words = "/wordcount/input"
	)
	c := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	text, err := c.Hadoop.WriteText(ctx, words, hadoop.Text{Seed: 7, Files: 2, FileBytes: input / 2})
	fixture.Must(t, err)
	for _, path := range []string{"/wordcount", "/teragen"} {
		c.remove(t, path)
	}
	c.forget(t)
	before, from := c.settled(t), disk.Monotonic()

	reader := c.submit(ctx, t, hadoop.Job{Kind: hadoop.WordCount, Input: words, Output: "/wordcount/output", Queue: hadoop.QueueProtected})
	writer := c.submit(ctx, t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Output: "/teragen", Queue: hadoop.QueueAggressor})
	var ran [2]hadoop.Status
	for i, app := range []*hadoop.App{reader, writer} {
		if ran[i], err = app.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	after := c.settled(t)
	together := min(ran[0].Finished.UnixMilli(), ran[1].Finished.UnixMilli()) - max(ran[0].Started.UnixMilli(), ran[1].Started.UnixMilli())
	t.Logf("WordCount took %v, TeraGen %v, both together for %d ms", ran[0].Elapsed, ran[1].Elapsed, together)
	if together <= 0 {
		t.Error("the jobs did not run at the same time")
	}

	a := c.judge(t, c.owners(t, map[string][]string{
		reader.ID: {words, "/wordcount/output"}, writer.ID: {"/teragen"},
	}), judge.Window{From: from, To: disk.Monotonic()})[0]
	moved := func(flow, direction string) float64 {
		labels := []string{fmt.Sprintf("direction=%q", direction), fmt.Sprintf("flow=%q", flow)}
		return after.Sum("flow_bytes_total", labels...) - before.Sum("flow_bytes_total", labels...)
	}
	// HDFS has 4 bytes of checksum for each 512.
	const checksums = 1 + 4./512
	within(t, "WordCount's bytes read", 2, moved(reader.ID, "read"), float64(a.Owners[reader.ID].ReadBytes))
	within(t, "WordCount's bytes read, by its input's size", 2, moved(reader.ID, "read"), input*checksums)
	within(t, "TeraGen's bytes written", 2, moved(writer.ID, "write"), float64(a.Owners[writer.ID].WriteBytes))
	within(t, "TeraGen's bytes written, by its output's size", 2, moved(writer.ID, "write"), rows*hadoop.RowBytes*checksums)

	// The rest are job files, which the jobs' clients and application masters write.
	after.Each("flow_bytes_total", func(labels map[string]string, bytes float64) {
		if bytes -= before.Sum("flow_bytes_total", "flow="+labels["flow"], "direction="+labels["direction"], "device="+labels["device"]); bytes != 0 {
			t.Logf("%s, %s: %.2f MiB", labels["flow"], labels["direction"], bytes/mib)
		}
	})
	all := moved(reader.ID, "read") + moved(writer.ID, "write")
	for _, flow := range []string{"unattributed", "replication", "balancer", "scanner"} {
		if n := moved(flow, "read") + moved(flow, "write"); n > 0 {
			t.Errorf("%.0f bytes are charged to %s, of %.0f in total: want none", n, flow, all)
		}
	}
	if n := moved("clients", "read") + moved("clients", "write"); n > all/50 {
		t.Errorf("%.0f bytes of the clients, of %.0f: their job files are smaller", n, all)
	}
	if other := moved(reader.ID, "write") + moved(writer.ID, "read"); other > all/50 {
		t.Errorf("%.0f bytes in the wrong direction, of %.0f", other, all)
	}
	fixture.Check(t, c.Hadoop.VerifyWordCount(ctx, "/wordcount/output", text))
	if _, err := c.Hadoop.VerifyRows(ctx, "/teragen", rows, true); err != nil {
		t.Error(err)
	}
}

// submit starts a job. If the job still runs when the test is over, it is killed.
func (c *cluster) submit(ctx context.Context, t *testing.T, job hadoop.Job) *hadoop.App {
	t.Helper()
	app, err := c.Hadoop.Submit(ctx, job)
	fixture.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		fixture.Check(t, app.Kill(ctx))
	})
	return app
}
