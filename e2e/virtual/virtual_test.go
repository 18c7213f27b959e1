// Package virtual tests virtual DataNodes: several DataNodes whose directories are on one physical
// disk, here two DataNodes on two partitions of it (IBIS, section 9). One scheduler must govern
// both, or the disk would be given away twice.
package virtual

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/stand"
)

const (
	mib = 1 << 20
	// The applications read one DataNode each. The files are so long that neither ends in time.
	strong, weak         = 1, 2
	strongWeight         = 3
	strongFile, weakFile = 256 * mib, 128 * mib
	files                = 2
	// Until the windows begin, both applications have been backlogged for this long.
	settling = 3 * time.Second
	window   = 10 * time.Second
	windows  = 2
)

// slow is the disk: so slow that any machine keeps it busy.
var slow = disk.Model{BytesPerSecond: 12_000_000, SeekMin: 2 * time.Millisecond, SeekMax: 12 * time.Millisecond, CapacityBytes: 1e12}

const device = `  algorithm: sfqd2
  quantum: 512KiB
  ahead: 16
  depth:
    min: 1
    max: 12
    start: 2
    gain: 0.5
    read: {fixed: 20ms, per_mib: 180ms}
    write: {fixed: 20ms, per_mib: 180ms}
`

var shared fixture.Stand

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:  "virtual",
		Disks: []disk.Options{{Name: "disk", Size: 4 << 30, Scheduler: "mq-deadline", Partitions: 2}},
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", More: daemon.Believe, Device: device,
				Weights: fmt.Sprintf("default: 1\nrules: [{application: %s, weight: %d}]\n", client.Application(strong), strongWeight)}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			c := hadoop.Config{NoYARN: true, BlockSize: strongFile}
			for _, mount := range s.Disks[0].Mounts() {
				c.DataNodes = append(c.DataNodes, hadoop.DataNode{JVMArgs: s.AgentArgs(0),
					Volumes: []hadoop.Volume{{Dir: filepath.Join(mount, "dfs")}}})
			}
			return c
		},
		ClientClasses: true,
		Agents:        []int{2},
	}, nil)
}

// reader is an application that reads files of one DataNode.
type reader struct {
	number   int
	dataNode int
	bytes    int64 // of each file
	ended    chan string
}

func (r reader) path(i int) string { return fmt.Sprintf("/virtual/app-%d-%d", r.number, i) }

// prepare writes the reader's files to its DataNode.
func (r reader) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	for i := range files {
		err := shared.Hadoop.FS().CreateOn(ctx, r.path(i), shared.Hadoop.DataNodeAddress(r.dataNode), r.bytes, func() io.Reader {
			return &filled{seed: int64(r.number), left: r.bytes}
		})
		fixture.Must(t, err)
	}
}

func (r reader) start(jvm *client.JVM) {
	for i := range files {
		jvm.Do("get", fmt.Sprintf("attempt=%s path=%s bytes=%d seed=%d", client.Attempt(r.number), r.path(i), r.bytes, r.number),
			func(event, value string) {
				if event == "done" || event == "error" {
					r.ended <- fmt.Sprintf("%s: %s %s", r.path(i), event, value)
				}
			})
	}
}

// filled is a reader of the bytes that a client expects.
type filled struct{ seed, at, left int64 }

func (f *filled) Read(b []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), f.left)]
	client.Fill(b, f.seed, f.at)
	f.at += int64(len(b))
	f.left -= int64(len(b))
	return len(b), nil
}

// TestTwoDataNodesOnOneDisk: two applications with weights of 3:1 read from two DataNodes, each of
// which is on a partition of its own. The disk's request log says how much each partition got.
func TestTwoDataNodesOnOneDisk(t *testing.T) {
	ctx := shared.Begin(t, 4*time.Minute)
	d := shared.Disks[0]
	doc := shared.Look(t)
	if len(doc.Devices) != 1 || len(fixture.Device(t, doc, d).Directories) != 2 {
		t.Fatalf("the daemon governs %+v, want one device with two directories", doc.Devices)
	}
	if !d.Modelled() {
		t.Logf("without a modelled disk, shares are not judged: %v", d.Reason())
		return
	}
	readers := []reader{
		{strong, 0, strongFile, make(chan string, files)},
		{weak, 1, weakFile, make(chan string, files)},
	}
	for _, r := range readers {
		r.prepare(ctx, t)
	}
	fixture.Must(t, d.Forget())
	jvm := shared.StartClients(t, client.Options{Log: filepath.Join(shared.Hadoop.LogDir(), "clients.log")})
	shared.Model(t, slow, d)
	for _, r := range readers {
		r.start(jvm)
	}
	fixture.Eventually(t, "both applications wait for the disk", func() bool {
		now := fixture.Device(t, shared.Look(t), d)
		return !slices.ContainsFunc(readers, func(r reader) bool {
			f := fixture.Flow(now, client.Application(r.number))
			return f.Waits < 3 || f.Bytes.Read < 4*mib
		})
	})
	time.Sleep(settling)
	from := disk.Monotonic()
	time.Sleep(windows * window)
	span := judge.Window{From: from, To: disk.Monotonic()}
	for _, r := range readers {
		select {
		case how := <-r.ended:
			t.Fatalf("ended before the measurement did: %s", how)
		default:
		}
	}
	fixture.Must(t, d.SyncLog())
	_, records, err := disk.ReadLog(d.LogPath())
	fixture.Must(t, err)
	for _, w := range judge.Windows(span, window) {
		var service [2]time.Duration
		for _, r := range records {
			for i := range service {
				if begin, end := d.Partition(i); w.From <= r.Ended && r.Ended < w.To && begin <= r.Offset && r.Offset < end {
					service[i] += time.Duration(r.Service)
				}
			}
		}
		ratio := float64(service[0]) / float64(service[1])
		t.Logf("the disk worked %.2f s for the first partition and %.2f s for the second: %.2f to 1", service[0].Seconds(), service[1].Seconds(), ratio)
		if !(ratio > 0.9*strongWeight && ratio < 1.1*strongWeight) {
			t.Errorf("the ratio of device time is %.2f, want %d within 10 %%", ratio, strongWeight)
		}
	}
}
