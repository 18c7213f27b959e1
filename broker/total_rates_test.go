package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/node/coordination"
	"penstock/wire/cluster"
)

const mib = 1 << 20

// meter is a node's disk on which one application moves bytes: as many as it wants, up to the disk's part of the
// application's total limit or, if the disk is contended, exactly its part of the total reserve.
type meter struct {
	name   string
	client *coordination.Client

	mu        sync.Mutex
	wants     int64 // bytes per second
	contended bool
	capacity  int64 // bytes per second; 0: not known
	part      policy.Total
	at        time.Time
	use       coordination.Use
}

func (m *meter) Name() string                { return m.name }
func (m *meter) SetParts(coordination.Parts) {}
func (m *meter) SetTotals(totals map[string]policy.Total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	m.part = totals["app"]
}

// rate returns the bytes per second that the application moves. m.mu is held.
func (m *meter) rate() int64 {
	rate := m.wants
	if m.contended {
		rate = min(rate, m.part.Reserve)
	}
	if m.part.Limit > 0 {
		rate = min(rate, m.part.Limit)
	}
	return rate
}

func (m *meter) work() {
	passed := time.Since(m.at)
	m.at = m.at.Add(passed)
	m.use.Bytes += int64(float64(m.rate()) * passed.Seconds())
	m.use.Service += passed / 10
	if m.wants > m.rate() {
		m.use.Wanted += passed
	}
}

func (m *meter) Uses() ([]coordination.Use, int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	if m.use.Bytes == 0 {
		return nil, m.capacity, true
	}
	return []coordination.Use{m.use}, m.capacity, true
}

func (m *meter) want(rate int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	m.wants = rate
}

func (m *meter) look() (rate int64, part policy.Total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rate(), m.part
}

// meters starts nodes on which one application wants bytes per second.
func meters(t *testing.T, broker string, contended bool, wants ...int64) (all []*meter) {
	t.Helper()
	for i, rate := range wants {
		m := &meter{name: fmt.Sprint("node", i), wants: rate, contended: contended, at: time.Now(), use: coordination.Use{Flow: "app"}}
		if contended {
			m.use.Bytes = 1 // at work, before it has a part
		}
		var err error
		m.client, err = coordination.New(coordination.Options{Node: m.name, Brokers: []string{broker}, Period: period,
			Devices: func() []coordination.Device { return []coordination.Device{m} },
			Rights:  func(map[string]coordination.Right) {}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { m.client.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		all = append(all, m)
	}
	return all
}

// sums returns the sums over all nodes.
func sums(all []*meter) (rate int64, part policy.Total) {
	for _, m := range all {
		r, p := m.look()
		rate, part.Reserve, part.Limit = rate+r, part.Reserve+p.Reserve, part.Limit+p.Limit
	}
	return rate, part
}

// TestATotalReserveFollowsTheTasks: an application is guaranteed 90 MiB/s in total. Its tasks move from three nodes
// to one, and so does the guaranteed rate. The broker's end changes nothing within the lease.
func TestATotalReserveFollowsTheTasks(t *testing.T) {
	const total = 90 * mib
	b := serve(t, "127.0.0.1:0", "rules: [{flow: app, total_reserve: 90MiB}]")
	nodes := meters(t, b.address, true, total, total, total)
	reached := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			rate, part := sums(nodes)
			return rate >= total*8/10 && part.Reserve <= total*11/10 && part.Reserve >= total-3
		})
	}
	eventually(t, "an even division", func() bool {
		for _, m := range nodes {
			if _, part := m.look(); part.Reserve < total/4 {
				return false
			}
		}
		return true
	})
	nodes[1].want(0)
	nodes[2].want(0)
	reached("the rate follows the tasks")
	if _, part := nodes[1].look(); part.Reserve < total/200 {
		t.Errorf("a node without tasks keeps %d: a task that returns has to wait for an exchange", part.Reserve)
	}
	nodes[0].want(0)
	nodes[1].want(total)
	reached("the tasks return")
	b.stop()
	time.Sleep(3 * period)
	reached("no broker")
}

// TestATotalReserveIsAdmitted: a total reserve is kept up to what its nodes can guarantee together. A node that becomes slow
// reduces it.
func TestATotalReserveIsAdmitted(t *testing.T) {
	const total = 90 * mib
	b := serve(t, "127.0.0.1:0", "rules: [{flow: app, total_reserve: 90MiB}]")
	nodes := meters(t, b.address, false, total, total)
	offer := func(each int64) {
		for _, m := range nodes {
			m.mu.Lock()
			m.capacity = each
			m.mu.Unlock()
		}
	}
	state := func(what string, want reserve.State, least, most int64) {
		t.Helper()
		eventually(t, what, func() bool {
			b.mu.Lock()
			verdict := reserve.Verdict{}
			if t := b.totalRates["app"]; t != nil {
				verdict = t.Verdict
			}
			b.mu.Unlock()
			_, part := sums(nodes)
			return verdict.State == want && part.Reserve >= least && part.Reserve <= most
		})
	}
	state("nothing is known about the nodes", reserve.Admitted, total-3, total*11/10)
	offer(30 * mib)
	state("the nodes are too slow", reserve.Reduced, 60*mib, 64*mib)
	offer(50 * mib)
	state("they are fast again", reserve.Admitted, total-3, total*11/10)
	applyText(t, b.Broker, "default: 1")
	eventually(t, "no guaranteed rate", func() bool { _, part := sums(nodes); return part.Reserve == 0 })
	offer(40 * mib)
	time.Sleep(3 * period)
	applyText(t, b.Broker, "rules: [{flow: app, total_reserve: 90MiB}]")
	state("a new rate that does not fit", reserve.Queued, 0, 0)
	states, err := asOperator(t, b.address, insecure.NewCredentials()).ListApplications(t.Context(), &cluster.ListApplicationsRequest{})
	if err != nil || len(states.GetApplications()) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	if p := states.GetApplications()[0].GetPromise(); p.GetState() != "queued" || p.GetFits() < 0.85 || p.GetFits() > 0.9 {
		t.Errorf("%+v", p)
	}
}

// TestATotalLimitIsNeverPassed: whatever moves, the parts of the limit that nodes have add up to at most 1.02 times the limit: the
// 2 % make up for what the application lacked before.
func TestATotalLimitIsNeverPassed(t *testing.T) {
	const total = 64 * mib
	const most = total * 102 / 100
	b := serve(t, "127.0.0.1:0", "rules: [{flow: app, total_limit: 64MiB}]")
	nodes := meters(t, b.address, false, 2*total, mib, 2*total)
	reached := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			rate, part := sums(nodes)
			return rate >= total*8/10 && part.Limit <= most
		})
	}
	reached("the limit is used")
	for _, m := range nodes {
		eventually(t, "a limit at each node", func() bool { _, part := m.look(); return part.Limit > 0 })
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			b.mu.Lock()
			sum := int64(0)
			for _, s := range b.sessions {
				if p := s.parts["app"]; p != nil {
					sum += p.Sent().Limit
				}
			}
			b.mu.Unlock()
			if sum > most+3 {
				t.Errorf("the nodes' parts of the limit add up to %d of %d", sum, total)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(period / 20):
			}
		}
	})
	for i := range 6 {
		for j, m := range nodes {
			rate := int64(mib)
			if i%3 == j {
				rate = 2 * total
			}
			m.want(rate)
		}
		reached("the limit follows the tasks")
	}
	close(stop)
	watching.Wait()

	applyText(t, b.Broker, "rules: [{flow: app, total_limit: 16MiB}]")
	eventually(t, "a lower limit", func() bool { rate, part := sums(nodes); return rate <= 17*mib && part.Limit <= 17*mib })
	applyText(t, b.Broker, "default: 1")
	eventually(t, "no limit", func() bool { _, part := sums(nodes); return part.Limit == 0 })
}
