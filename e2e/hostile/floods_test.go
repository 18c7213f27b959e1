package hostile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
)

// TestProgressWithoutEnd: connections with thousands of streams report progress as fast as the
// daemon accepts it. They take no service from a neighbour.
func TestProgressWithoutEnd(t *testing.T) {
	for _, c := range []struct {
		name                 string
		connections, streams int
		executor             int
	}{
		{"tasks", 3, 1024, 0},
		{"executor", 1, 4096, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, options{})
			setModel(t, 0, usual)
			r := readOn(t, n, 0)
			watch(t, n)
			var a *process
			r.keepsItsRate(t, func() func() {
				a = run(t, plan{Attack: "progress", User: nobody, Socket: n.socket, Dir: attackersDir(0),
					Path: filepath.Join(attackersDir(0), "flood-"+c.name), Number: c.connections, Streams: c.streams, Base: c.executor})
				return func() { a.end(t) }
			})
			if a.c["frames"] < 10*1024 {
				t.Errorf("%d frames: this test has shown nothing", a.c["frames"])
			}
			t.Logf("%d frames in %d ms", a.c["frames"], a.c["milliseconds"])
		})
	}
}

// logLines counts the lines of the daemon's log.
func (n *node) logLines(t *testing.T) (lines int) {
	t.Helper()
	text, err := os.ReadFile(n.Log)
	fixture.Must(t, err)
	for _, b := range text {
		if b == '\n' {
			lines++
		}
	}
	return lines
}

// TestRefusedAgentsAreSaidOnce: a refused agent connects again forever, and the log reports it
// once. The log lines of every kind of flood are bounded.
func TestRefusedAgentsAreSaidOnce(t *testing.T) {
	n := startNode(t, options{})
	watch(t, n)
	p := plan{Attack: "flood", User: nobody, Socket: n.socket, Dir: attackersDir(0)}
	before := n.logLines(t)
	patient := p
	patient.Number, patient.Base = 2, 1
	a := run(t, patient)
	time.Sleep(5 * time.Second)
	c := a.end(t)
	said := n.logLines(t) - before
	t.Logf("an agent was refused %d times in 5 s: %d lines", c["refused"], said)
	if said > 3 || c["refused"] < 5 {
		t.Errorf("%d lines about %d refusals", said, c["refused"])
	}

	before = n.logLines(t)
	var floods []*process
	for reason := 1; reason <= 4; reason++ {
		for _, user := range []int{nobody, another} {
			p.User, p.Base = user, reason
			floods = append(floods, run(t, p))
		}
	}
	const flood = 4 * time.Second
	time.Sleep(flood)
	refused, full := int64(0), int64(0)
	for _, a := range floods {
		c := a.end(t)
		refused, full = refused+c["refused"], full+c["full"]
	}
	said = n.logLines(t) - before
	t.Logf("%d connections were refused in %v, and %d times there was no room to wait: %d lines", refused, flood, full, said)
	if said > 150 || refused < 1000 {
		t.Errorf("%d lines about %d refusals", said, refused)
	}
	// An agent that may connect can connect.
	b, err := connect(n.socket, server(0))
	fixture.Must(t, err)
	b.close()
}
