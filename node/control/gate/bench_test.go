package gate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkMarkedFileSystem measures how much a mark delays a process that passes. "watched" is a file
// system after Watch. "marked" is a file system on which operations of another user are held. "contested" is
// a file on such a file system that the other user has used, so that each operation causes an event.
func BenchmarkMarkedFileSystem(b *testing.B) {
	dir := disk(b, "ext4")
	var g *Gate
	seen := make(chan struct{}, 1)
	g = startGate(b, Options{Held: func(r Request) {
		g.Allow(r.ID)
		select {
		case seen <- struct{}{}:
		default:
		}
	}})
	must(b, g.Classes([]Rule{{Class: 1, UID: foreignUser}}))
	states := []struct {
		name string
		set  func() error
	}{
		{"unmarked", func() error { return g.Unwatch(dir) }},
		{"watched", func() error { g.Unmark(dir); return g.Watch(dir) }},
		{"marked", func() error { return g.Mark(dir) }},
		{"contested", func() error { return g.Mark(dir) }},
	}
	const length = 4 << 20
	buf := make([]byte, length)
	for _, op := range []struct {
		name string
		cold bool
		do   func(fd, i int) (int, error)
	}{
		{"pwrite4K", false, func(fd, i int) (int, error) { return unix.Pwrite(fd, buf[:4<<10], int64(i%64)*4<<10) }},
		{"pwrite64K", false, func(fd, i int) (int, error) { return unix.Pwrite(fd, buf[:64<<10], int64(i%16)*64<<10) }},
		{"cached4K", false, func(fd, i int) (int, error) { return unix.Pread(fd, buf[:4<<10], int64(i%64)*4<<10) }},
		{"cached64K", false, func(fd, i int) (int, error) { return unix.Pread(fd, buf[:64<<10], int64(i%16)*64<<10) }},
		{"cold64K", true, func(fd, i int) (int, error) { return unix.Pread(fd, buf[:64<<10], int64(i%50)*64<<10) }},
	} {
		for _, state := range states {
			b.Run(op.name+"/"+state.name, func(b *testing.B) {
				must(b, g.Watch(dir)) // operations on files that are opened from now on can be held
				// The files are not deleted: a new file with the same inode number would still be contested.
				name := filepath.Join(dir, op.name+"-"+state.name)
				must(b, os.WriteFile(name, buf, 0o666))
				must(b, os.Chmod(name, 0o666))
				f, err := os.OpenFile(name, os.O_RDWR, 0)
				must(b, err)
				defer f.Close()
				must(b, f.Sync())
				must(b, state.set())
				if state.name == "contested" {
					// Operations of the other user are not seen while the file is ignored.
					p := startHelper(b, []how{as(foreignUser)}, "writer", name, "1", "1000000")
					select {
					case <-seen: // by an earlier benchmark
					default:
					}
					p.begin()
					<-seen
					p.kill()
				}
				took := make([]time.Duration, 0, b.N)
				for i := 0; b.Loop(); i++ {
					if op.cold {
						must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
					}
					begin := time.Now()
					if _, err := op.do(int(f.Fd()), i); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	b.Logf("%+v", g.Stats())
}
