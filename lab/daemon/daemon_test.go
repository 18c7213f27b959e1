package daemon

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/wire"
)

func TestMetricsAreAddedUp(t *testing.T) {
	const page = `# HELP penstock_flow_bytes_total Bytes.
penstock_flow_bytes_total{device="loop0",flow="a",direction="read"} 3
penstock_flow_bytes_total{device="loop1",flow="a",direction="read"} 4
penstock_flow_bytes_total{device="loop0",flow="b",direction="write"} 1e+06
penstock_flow_bytes 7
penstock_mode 2
`
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"mode", nil, 2},
		{"flow_bytes", nil, 7},
		{"flow_bytes_total", nil, 1000007},
		{"flow_bytes_total", []string{`flow="a"`}, 7},
		{"flow_bytes_total", []string{`flow="a"`, `device="loop1"`}, 4},
		{"flow_bytes_total", []string{`flow="c"`}, 0},
		{"nothing", nil, 0},
	} {
		m, err := ParseMetrics(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s %v: %v; want %v", c.name, c.labels, got, c.want)
		}
	}
	if _, err := ParseMetrics(strings.NewReader("penstock_mode x\n")); err == nil {
		t.Error("x is a number")
	}
}

// No agent sends these frames, so a reader that accepts one is wrong.
func TestBadFramesAreBad(t *testing.T) {
	all, err := BadFrames("/data")
	if err != nil {
		t.Fatal(err)
	}
	hello, err := Hello("/data")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := BadFrames("/data")
	for i, b := range all {
		if bytes.Equal(b.Bytes, hello) || !bytes.Equal(b.Bytes, again[i].Bytes) || b.Name == "" {
			t.Errorf("%s: good, or another each time", b.Name)
		}
	}
	if len(hello) <= wire.HeaderLen {
		t.Error("the hello is empty")
	}
}

func TestRefusedWaitsForTheHangUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.CopyN(io.Discard, c, 3)
			if first {
				c.Close()
			} else {
				defer c.Close() // it never hangs up
			}
		}
	}()
	if err := Refused(socket, []byte("bad"), time.Minute); err != nil {
		t.Error(err)
	}
	if err := Refused(socket, []byte("bad"), 100*time.Millisecond); err == nil {
		t.Error("a daemon that does not hang up has refused")
	}
}
