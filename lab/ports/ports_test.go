package ports

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

func TestPortsAreFreeAndDistinctAndNobodysConnections(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var low, high int
	if _, err := fmt.Sscan(strings.TrimSpace(string(raw)), &low, &high); err != nil {
		t.Fatal(err)
	}
	all, err := Free(50)
	if err != nil || len(all) != 50 {
		t.Fatal(all, err)
	}
	seen := map[int]bool{}
	for _, port := range all {
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
		if port >= 32768 || low >= 32768 && port >= low {
			t.Errorf("port %d is of those for outgoing connections, %d to %d", port, low, high)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// A port that was drawn for a server is not drawn again before the server listens.
func TestNoPortIsDrawnTwice(t *testing.T) {
	mu.Lock()
	clear(drawn) // Free itself empties it when most ports have been drawn
	mu.Unlock()
	seen := map[int]bool{}
	for range count / 4 {
		all, err := Free(1)
		if err != nil {
			t.Fatal(err)
		}
		if seen[all[0]] {
			t.Fatalf("port %d twice", all[0])
		}
		seen[all[0]] = true
	}
}

func TestAddress(t *testing.T) {
	address, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
