package daemon

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCutBreaksOneConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Cut(os.Getpid(), socket, 0); err == nil {
		t.Error("a connection that is not there was cut")
	}
	var clients, served []net.Conn
	for range 3 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		clients, served = append(clients, c), append(served, s)
	}
	// The kernel assigns the lowest free descriptors, so the order of the connections is not known.
	// Index five, modulo three, is one of them.
	if err := Cut(os.Getpid(), socket, 5); err != nil {
		t.Fatal(err)
	}
	cut := 0
	for i, c := range clients {
		if _, err := served[i].Write([]byte("x")); err != nil {
			cut++
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the client of the connection that was cut reads %v, want the end", err)
			}
			continue
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("another connection: %v", err)
		}
	}
	if cut != 1 {
		t.Errorf("%d connections were cut, want 1", cut)
	}
}

func TestOnlyConnectionsOfTheSocketAreTaken(t *testing.T) {
	table := `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/agent.sock
0000000000000000: 00000003 00000000 00000000 0001 03 12 /run/agent.sock
0000000000000000: 00000003 00000000 00000000 0001 03 13
0000000000000000: 00000003 00000000 00000000 0001 03 14 /run/agent.sock.other
0000000000000000: 00000003 00000000 00000000 0001 03 15 /run/agent.sock
broken`
	got := connections(table, "/run/agent.sock")
	if len(got) != 2 || got[0] != "12" || got[1] != "15" {
		t.Errorf("connections %v, want 12 and 15", got)
	}
}
