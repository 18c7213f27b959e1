package versions

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

// TestVolumes: one DataNode has two directories on its disk, one has xfs, and one has mounts of its own, as in a container. Two
// applications write files at the same time and read them from the disks: files with three replicas, and then erasure-coded
// files. First there is no daemon, then there is one. Each byte is charged to its application, no transfer takes longer than 1.5
// times the time without a daemon, plus 3 s, and the loss of a DataNode loses no data.
func TestVolumes(t *testing.T) {
	const dataNodes = 3
	lib := fetch(t, hadoop.DefaultVersion)
	c := up(t, stand.Spec{
		Disks: []disk.Options{{Name: "disk0", Size: 512 * fixture.MiB}, {Name: "disk1", Size: 512 * fixture.MiB, FileSystem: "xfs"}, {Name: "disk2", Size: 512 * fixture.MiB}},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			all := s.GovernedDataNodes("dfs")
			all[0].Volumes = append(all[0].Volumes, hadoop.Volume{Dir: filepath.Join(s.Disks[0].Mount(), "second")})
			real, seen := all[2].Volumes[0].Dir, s.Path("seen")
			fixture.Must(t, os.MkdirAll(real, 0o700))
			all[2].Volumes[0].Dir = seen
			all[2].Wrapper = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, real, seen}
			return hadoop.Config{Lib: lib, NoYARN: true, Replication: dataNodes, DataNodes: all, Settings: hadoop.SmallDisks}
		},
		NodesLater: true,
	})
	fs := c.Hadoop.FS()
	fixture.Must(t, fs.Mkdir(t.Context(), "/striped"))
	fixture.Must(t, fs.SetErasureCoding(t.Context(), "/striped", "XOR-2-1-1024k"))
	c.limit(t)
	kinds := []struct {
		name, dir string
		onEach    float64 // bytes of a file on each disk
	}{
		{"three replicas", "", stored},
		{"erasure-coded", "/striped", stored / 2}, // two parts of the data and one of parity
	}
	// took contains the durations without a daemon, by kind and operation.
	took := map[string]time.Duration{}
	timed := func(name string, governed bool, do func()) {
		t.Helper()
		begin := time.Now()
		do()
		now := time.Since(begin)
		if !governed {
			took[name] = now
			return
		}
		t.Logf("%s took %.1f s, and without a daemon %.1f s", name, now.Seconds(), took[name].Seconds())
		if now > took[name]*3/2+3*time.Second {
			t.Errorf("%s took %v, and without a daemon %v", name, now, took[name])
		}
	}
	next, last := 0, map[string]int{} // the number of an application, and of a file in each directory
	both := func(dir string) []transfer {
		next += 2
		return []transfer{{next - 1, next - 1, dir}, {next, next, dir}}
	}
	for _, governed := range []bool{false, true} {
		if governed {
			fixture.Must(t, c.StartNode(t.Context(), 0, nil))
			fixture.Must(t, c.AwaitAgents(t.Context(), 0, dataNodes))
		}
		for _, k := range kinds {
			writers := both(k.dir)
			timed(k.name+": writing", governed, func() {
				c.all(t, "put", fmt.Sprintf("replication=%d block=%d", dataNodes, blockSize), writers...)
				fixture.Must(t, c.Forget())
			})
			last[k.dir] = writers[0].file
			readers := both(k.dir)
			for i := range readers {
				readers[i].file = writers[i].file
			}
			timed(k.name+": reading", governed, func() { c.all(t, "get", "", readers...) })
			if !governed {
				continue
			}
			c.settle(t)
			for i, w := range writers {
				for _, d := range c.Disks {
					c.moved(t, w.app, "write", k.onEach, onDevice(d))
				}
				c.held(t, w.app)
				c.moved(t, w.app, "read", 0)
				c.moved(t, readers[i].app, "read", stored)
			}
		}
	}
	if entries, err := os.ReadDir(c.Path("seen")); err != nil || len(entries) > 0 {
		t.Errorf("the machine sees %v where the third DataNode has its volume (%v)", entries, err)
	}
	for _, dir := range []string{"dfs", "second"} {
		found, err := filepath.Glob(filepath.Join(c.Disks[0].Mount(), dir, "current", "BP-*", "current", "finalized", "*", "*", "blk_*"))
		fixture.Must(t, err)
		if len(found) == 0 {
			t.Errorf("the DataNode has put no block into %s", dir)
		}
	}

	// Without DataNode 1, HDFS computes its parts of erasure-coded files from the other parts.
	c.Hadoop.StopDataNode(1)
	for _, k := range kinds { // both files, because DataNode 1 may hold only the parity of one of them
		c.all(t, "get", "", transfer{next + 1, last[k.dir], k.dir}, transfer{next + 2, last[k.dir] + 1, k.dir})
	}
	if n := c.Metric(t, "flow_bytes_total", fmt.Sprintf("flow=%q", "unattributed")); n > 0 {
		t.Errorf("%.0f bytes are unattributed", n)
	}
}
