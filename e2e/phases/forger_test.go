package phases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/node/status"
)

// newClient starts a JVM outside of every container. The test chooses the names of its HDFS
// clients.
func newClient(t *testing.T) *client.JVM {
	t.Helper()
	return shared.StartClients(t, client.Options{Temp: t.TempDir(), Log: shared.Path("client.log")})
}

// TestForgerGainsNothing: a shell writes another application's name into its client. It gets the
// share of unattributed clients, regardless of that application's share, and the application keeps
// its own.
func TestForgerGainsNothing(t *testing.T) {
	ctx := shared.Begin(t, 5*time.Minute)
	shared.Remove(t, "/honest")
	shared.Remove(t, "/forged")
	shared.Model(t, disk.HDD(20e6))
	const rows = 20_000_000 // more than the test has time for
	honest := shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: 4, Output: "/honest", Queue: hadoop.QueueAggressor})
	shared.Weights(t, fmt.Sprintf("default: 10\nrules:\n  - {application: %s, weight: 40}\n", honest.ID))
	fixture.Eventually(t, "TeraGen writes", func() bool { return fixture.Streamed(shared.Look(t), honest.ID, "persistent").Written > 4*fixture.MiB })

	refused := refuted(shared.Look(t))
	forger := newClient(t)
	attempt := strings.Replace(honest.ID, "application_", "attempt_", 1) + "_m_000000_0"
	failed := make(chan string, 1)
	forger.Do("put", fmt.Sprintf("path=/forged attempt=%s seed=1 block=%d bytes=%d", attempt, shared.Hadoop.BlockSize(), int64(rows*hadoop.RowBytes)), func(event, value string) {
		if event == "error" || event == "done" {
			select {
			case failed <- event + " " + value:
			default:
			}
		}
	})
	fixture.Eventually(t, "the forged claim is refuted", func() bool {
		select {
		case what := <-failed:
			t.Fatalf("the forger has ended too early: %s", what)
		default:
		}
		return refuted(shared.Look(t)) > refused
	})
	fixture.Eventually(t, "the forger is unattributed", func() bool {
		return fixture.Streamed(shared.Look(t), "unattributed", "persistent").Written > 16*fixture.MiB
	})

	// From here on, both always have more to write. Their weights are 40 and 10.
	from := settledRates(t, honest.ID)
	select {
	case what := <-failed:
		t.Fatalf("the forger has ended too early: %s", what)
	case <-time.After(20 * time.Second): // the window that is judged
	}
	to := rates(shared.Look(t), honest.ID)
	own, other := to[0]-from[0], to[1]-from[1]
	t.Logf("in 20 s TeraGen's service was %.2f s, the forger's %.2f s", own/1e9, other/1e9)
	if part := other / (own + other); part < 0.15 || part > 0.25 {
		t.Errorf("the forger has %.1f %% of the device's service, the unattributed flow is due 20 %%", 100*part)
	}
}

// refuted returns the number of refuted claims.
func refuted(doc *status.Document) (n int64) {
	for _, c := range doc.Identity.Claims {
		if c.Verdict == "refuted" {
			n += c.Count
		}
	}
	return n
}

// rates returns the service, in ns, of the application and of the unattributed flow.
func rates(doc *status.Document, application string) (service [2]float64) {
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			for i, name := range []string{application, "unattributed"} {
				if f.Name == name {
					service[i] += float64(f.ServiceNS)
				}
			}
		}
	}
	return service
}

// settledRates waits until both have requests queued, and returns rates.
func settledRates(t *testing.T, application string) (service [2]float64) {
	t.Helper()
	fixture.Eventually(t, "both wait for the device", func() bool {
		doc := shared.Look(t)
		waiting := 0
		for _, d := range doc.Devices {
			for _, f := range d.Flows {
				if (f.Name == application || f.Name == "unattributed") && f.Queued > 0 {
					waiting++
				}
			}
		}
		service = rates(doc, application)
		return waiting == 2
	})
	return service
}
