package hostile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// seedVariable names the variable with the seed of an earlier run, to repeat its sessions.
const seedVariable = "HOSTILE_SEED"

// TestSessions: with any valid frames from peers, in any order and with any sizes, the daemon keeps
// its bounds, opens only the peer's files, makes requests of at most a quantum, and closes all
// files that it has opened.
func TestSessions(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d repeats these sessions", seedVariable, seed)
	n := startNode(t, options{})
	secrets := []string{
		cold(t, filepath.Join(localDir(0), "blk_5"), mib, 0), cold(t, filepath.Join(localDir(0), "blk_5_1001.meta"), mib, 0),
		"/etc/shadow",
	}
	own := []string{filepath.Join(attackersDir(0), "sessions"), filepath.Join(dataDir(1), "sessions")}
	for i, dir := range own {
		fixture.Must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { os.RemoveAll(dir) })
		fixture.Must(t, os.Symlink(secrets[0], filepath.Join(dir, "link")))
		fixture.Must(t, os.Symlink(localDir(i), filepath.Join(dir, "up")))
	}
	fixture.Must(t, os.Chown(own[0], nobody, nobody))
	setModel(t, 0, usual)
	setModel(t, 1, usual)

	var mu sync.Mutex
	looks, found := 0, map[string]int{}
	g := watchWith(t, n, func(names []string) {
		mu.Lock()
		defer mu.Unlock()
		looks++
		for _, name := range names {
			if slices.Contains(secrets, name) {
				found[name]++
			}
		}
	})
	time.Sleep(settling) // the guard's own connections
	before := len(forPeers(n))
	const length = 12 * time.Second
	peers := []plan{
		{User: nobody, Dir: localDir(0), Path: own[0], Number: 6},
		{User: nobody, Dir: localDir(0), Path: own[0], Number: 6},
		{User: 0, Dir: localDir(1), Path: own[1], Number: 6, Base: 1},
	}
	var all []*process
	for i, p := range peers {
		p.Attack, p.Socket, p.Seed = "sessions", n.socket, seed+uint64(i)
		all = append(all, run(t, p))
	}
	time.Sleep(length)
	sum := counts{}
	for _, a := range all {
		for what, n := range a.end(t) {
			sum[what] += n
		}
	}
	// The disks answer at once, so that pending work ends soon.
	for i := range shared.Disks {
		setModel(t, i, disk.Model{})
	}
	fixture.EventuallyWithin(t, "all streams are closed", patience, func() bool { return n.metric(t, "flow_streams") == 0 })
	// Files of tasks stay open for a while, because they may be deleted before they are drained
	// (lazy_age).
	for deadline := time.Now().Add(patience); len(forPeers(n)) > before+2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors at the beginning, and now:\n%s", before, strings.Join(forPeers(n), "\n"))
		}
	}
	t.Logf("%d sessions with %d frames", sum["sessions"], sum["frames"])
	if sum["sessions"] < 20 || sum["frames"] < 5000 {
		t.Error("this test has shown nothing")
	}
	mu.Lock()
	for name, times := range found {
		// The daemon must open a file to see its owner, and then closes it at once.
		if t.Logf("the daemon had %s open at %d of %d looks", name, times, looks); times > 3+looks/50 {
			t.Errorf("the daemon kept %s open", name)
		}
	}
	mu.Unlock()
	for _, path := range secrets[:2] {
		if got := resident(t, path); got > 0 {
			t.Errorf("%d bytes of %s were staged", got, path)
		}
	}
	for _, flow := range []string{attacker, neighbour, "clients", "unattributed"} {
		label := fmt.Sprintf("flow=%q", flow)
		for i := range shared.Disks {
			device := fmt.Sprintf("device=%q", filepath.Base(shared.Disks[i].Device()))
			bytes, requests := n.metric(t, "flow_bytes_total", label, device), n.metric(t, "flow_requests_total", label, device)
			kernels := n.metric(t, "flow_unscheduled_bytes_total", label, device) // moved without a request
			t.Logf("%s on disk %d: %.1f MiB, %.1f of them the kernel's, %.0f requests", flow, i, bytes/mib, kernels/mib, requests)
			if bytes < 0 || bytes-kernels > requests*quantum {
				t.Errorf("%s: %.0f bytes in %.0f requests, more than a quantum each", flow, bytes-kernels, requests)
			}
		}
		// The number of sent bytes is what the peer claims.
		if sent := n.metric(t, "flow_bytes_total", label, `device="network"`); sent < 0 || sent > float64(sum["frames"])*(1<<40) {
			t.Errorf("%s: %.0f bytes were sent", flow, sent)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.Logf("%d descriptors for peers before, %d of all at most, %d for peers after", before, g.files, len(forPeers(n)))
}

// forPeers returns the descriptors that the daemon has open for peers: sockets and files on the
// disks.
func forPeers(n *node) []string {
	return slices.DeleteFunc(descriptors(n.PID()), func(name string) bool {
		return !strings.HasPrefix(name, "socket:") && !strings.HasPrefix(name, shared.Dir+"/disk")
	})
}
