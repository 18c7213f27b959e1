package characterise

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/status"
)

// daemon is a node's daemon that answers the n-th question, from 1, with what it is given; nil: with an error.
func daemon(t *testing.T, answer func(n int64) *status.Document) (address string) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d := answer(asked.Add(1))
		if d == nil {
			http.Error(w, "the daemon restarts", http.StatusServiceUnavailable)
			return
		}
		if err := json.NewEncoder(w).Encode(d); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// running returns the document of a node on which the application has used CPU time and a disk.
func running(n, cpu int64, processes int) *status.Document {
	d := &status.Document{Version: status.Version, Machine: status.Machine{Cores: 4, MemoryBytes: 1 << 30}}
	d.Applications = status.Applications{Looked: time.Unix(n, 0), Top: []status.Application{{Name: "job", Processes: processes, CPUNS: cpu, MemoryBytes: 1 << 20}}}
	d.Devices = []status.Device{{Name: "sda", Flows: []status.Flow{{Name: "job", ServiceNS: cpu / 2, Bytes: status.Pair{Read: cpu}}}}, {Name: networkDevice}}
	return d
}

// TestFollow: an application is followed on two nodes until it has ended. A node that does not answer for a while is passed
// over, and what it did meanwhile counts when it answers again. The file that is written is the one that is returned.
func TestFollow(t *testing.T) {
	const steps = 6 // in which the application works
	node := func(silent int64) string {
		return daemon(t, func(n int64) *status.Document {
			if n == silent {
				return nil
			}
			processes := 1
			if n > steps {
				processes = 0
			}
			return running(n, 1000*min(n, steps), processes)
		})
	}
	var out bytes.Buffer
	var said []string
	f, err := Follower{Application: "job", Addresses: []string{node(0), node(3)}, Period: time.Millisecond, Memory: 600, Network: 1e9, Out: &out, Quiet: 20 * time.Millisecond,
		Progress: func(text string) { said = append(said, text) }}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range f.Samples {
		last := n.Samples[len(n.Samples)-1]
		if used := int64(1000 * (steps - 1)); int64(last.CPU) != used || last.Read != used || int64(last.Disk) != used/2 { // the first reading is the origin
			t.Errorf("node %d: %+v", i, last)
		}
		if m := n.Machine; m.Cores != 4 || m.Memory != 600 || m.Disks != 1 || m.Network != 1e9 {
			t.Errorf("node %d: %+v", i, m)
		}
	}
	if len(f.Samples[1].Samples) >= len(f.Samples[0].Samples) {
		t.Errorf("%d readings of the node that was silent once, %d of the other", len(f.Samples[1].Samples), len(f.Samples[0].Samples))
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "503") || !strings.Contains(all, "job: CPU 0 s") {
		t.Errorf("progress:\n%s", all)
	}
	read, err := Read(&out)
	if err != nil || read.Application != "job" || len(read.Samples) != 2 || len(read.Samples[0].Samples) != len(f.Samples[0].Samples) {
		t.Errorf("the file: %v, %+v", err, read)
	}
}

// TestFollowNeedsAllNodesAtFirst: a node that does not answer at the start is an error, and nothing is written.
func TestFollowNeedsAllNodesAtFirst(t *testing.T) {
	var out bytes.Buffer
	_, err := Follower{Application: "job", Addresses: []string{daemon(t, func(int64) *status.Document { return nil })}, Period: time.Millisecond, Out: &out, Progress: func(string) {}}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "503") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestFollowEnds: with the end of the context, the file so far is returned. An application that has not begun has no end.
func TestFollowEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address := daemon(t, func(n int64) *status.Document {
		if n == 50 {
			cancel()
		}
		return running(n, 0, 0)
	})
	var out bytes.Buffer
	waited := 0
	f, err := Follower{Application: "job", Addresses: []string{address}, Period: time.Millisecond, Out: &out, Quiet: time.Nanosecond, Progress: func(text string) {
		if strings.Contains(text, "not at work yet") {
			waited++
		}
	}}.Run(ctx)
	if err != nil || len(f.Samples) != 1 || waited < 49 {
		t.Errorf("%v, %+v, %d times not at work", err, f, waited)
	}
}
