package remote

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/stand"
)

// flushes are the durations of a probe's flushes.
type flushes struct {
	mu  sync.Mutex
	all []time.Duration
	err string
}

// probe starts a client that writes 64 KiB ten times a second, and flushes them with hflush.
func probe(jvm *client.JVM, path string) *flushes {
	f := &flushes{}
	jvm.Do("probe-write", "path="+path+" every=100", func(event, value string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch event {
		case "write":
			_, took, err := client.Timed(value)
			if err != nil {
				f.err = err.Error()
			}
			f.all = append(f.all, took)
		case "error", "trouble":
			f.err = value
		}
	})
	return f
}

// after returns the sorted durations after the first skip ones. A failed probe ends the test.
func (f *flushes) after(t *testing.T, skip int) []time.Duration {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != "" {
		t.Fatal(f.err)
	}
	return slices.Sorted(slices.Values(f.all[min(skip, len(f.all)):]))
}

// TestUsersTakeTurns: one user's shells fill a slow disk. The flushes of another user's small
// writer do not wait for them. Those of a small writer of the same user do.
func TestUsersTakeTurns(t *testing.T) {
	const writers, rate, many, few = 12, 12_000_000, 80, 20
	shared.Weights(t, "default: 1\n")
	shared.Remove(t, "/users")
	fixture.Must(t, shared.Hadoop.FS().Mkdir(t.Context(), "/users"))
	shared.Model(t, disk.HDD(rate))
	root := shared.StartClients(t, client.Options{Temp: t.TempDir(), Log: shared.Path("clients-root.log")})
	nobody := shared.StartClients(t, client.Options{Temp: t.TempDir(), Log: shared.Path("clients-nobody.log"),
		Under: []string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}})
	for i := range writers {
		root.Do("put", fmt.Sprintf("path=/users/bulk-%d bytes=%d block=%d", i, int64(1)<<40, 64*fixture.MiB), func(string, string) {})
	}
	fixture.Eventually(t, "the writers have filled the backlog", func() bool {
		f := fixture.Flow(fixture.Device(t, look(t), shared.Disks[0]), "clients")
		return f.Queued > 0 && f.BacklogBytes > 64*fixture.MiB
	})
	same, other := probe(root, "/users/same"), probe(nobody, "/users/other")
	const skip = 2 // before the daemon knows the user
	fixture.EventuallyWithin(t, "both probes have flushed", stand.Patience, func() bool {
		return len(same.after(t, skip)) >= few && len(other.after(t, skip)) >= many
	}, func() string {
		return fmt.Sprintf("the same user's has flushed %d times, the other user's %d times", len(same.after(t, 0)), len(other.after(t, 0)))
	})
	bulk, small := same.after(t, skip), other.after(t, skip)
	if f := fixture.Flow(fixture.Device(t, look(t), shared.Disks[0]), "unattributed"); f.Streams > 0 {
		t.Errorf("%d streams are unattributed: then flows take turns, not users", f.Streams)
	}
	p90 := func(d []time.Duration) time.Duration { return d[len(d)*9/10] }
	t.Logf("90 %% of the flushes of another user take at most %v, the longest takes %v; of the same user: %v, %v",
		p90(small), small[len(small)-1], p90(bulk), bulk[len(bulk)-1])
	if 3*p90(small) > p90(bulk) {
		t.Errorf("another user's flushes take %v, those of the writers' user %v", p90(small), p90(bulk))
	}
}
