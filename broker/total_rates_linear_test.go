package broker

import (
	"fmt"
	"testing"

	"penstock/broker/policyfile"
	"penstock/core/policy"
)

// rated returns a broker with applications that have total rates, all of them at work at all nodes.
func rated(t testing.TB, nodes, applications int) (*Broker, []*session) {
	t.Helper()
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b.policy, err = policyfile.Parse([]byte("rules: [{total_reserve: 1MiB, total_limit: 1GiB}]")); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range applications {
		names = append(names, fmt.Sprint("application", i))
	}
	var sessions []*session
	for i := range nodes {
		sessions = append(sessions, reporting(t, b, fmt.Sprint("n", i), 1<<40, names...))
	}
	b.matchPending()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.computeRights()
	return b, sessions
}

// TestANewNodeDividesNothing: a node's first answer with an application that is at work at other nodes gives it what nobody
// has, and divides nothing. Otherwise each of the node's applications would cost a look at all nodes, with the broker's lock held.
func TestANewNodeDividesNothing(t *testing.T) {
	b, sessions := rated(t, 100, 1)
	const name = "application0"
	look := func(s *session) (part policy.Total, sent int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return s.parts[name].Due(), s.parts[name].Sent().Limit
	}
	free := int64(1 << 30)
	for _, s := range sessions {
		_, sent := look(s)
		free -= sent
	}
	before, _ := look(sessions[1])
	s := reporting(t, b, "new", 1<<40, name)
	if part, sent := look(s); part.Reserve != 0 || part.Limit != max(0, free) || sent != max(1, free) {
		t.Errorf("the new node has %+v and %d, and the others have left %d", part, sent, free)
	}
	if now, _ := look(sessions[1]); now != before {
		t.Errorf("another node's part was %+v and is %+v", before, now)
	}
	b.mu.Lock()
	b.computeRights()
	b.mu.Unlock()
	if now, _ := look(s); now.Limit == 0 || now.Reserve == 0 {
		t.Errorf("after the next division, the node has %+v", now)
	}
}

// BenchmarkTotalRates computes the rights of 100 applications with total rates at 1,000 nodes.
func BenchmarkTotalRates(b *testing.B) {
	broker, _ := rated(b, 1000, 100)
	broker.mu.Lock()
	defer broker.mu.Unlock()
	for b.Loop() {
		broker.computeRights()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(1000*100), "ns/pair")
}

// BenchmarkTotalRatesOfANewNode answers the first report of a node with 1,000 applications, which are at work at 100 other nodes.
func BenchmarkTotalRatesOfANewNode(b *testing.B) {
	broker, sessions := rated(b, 100, 1000)
	s := sessions[0]
	broker.mu.Lock()
	defer broker.mu.Unlock()
	for b.Loop() {
		clear(s.parts)
		for i := range s.apps.sent {
			s.apps.sent[i].right = right{}
		}
		broker.answer(s)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/application")
}
