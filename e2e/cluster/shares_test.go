package cluster

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"penstock/sim/optimum"
	"penstock/testbed/client"
	"penstock/testbed/disk"
	"penstock/testbed/judge"
)

// application is one of the contest: its tasks write on some of the nodes only.
type application struct {
	number int
	weight int
	on     []int
}

var contest = []application{{1, 2, []int{0}}, {2, 3, []int{0, 1, 2}}, {3, 3, []int{1, 2}}}

func (a application) flow() string { return client.Application(a.number) }

const (
	settling = 6 * time.Second
	measured = 16 * time.Second
	tasks    = 3 // of an application on a node
)

// TestSharesOfTheCluster: tasks of three applications lie unevenly on three nodes. By local
// shares the totals are far from the weights; with the broker they are as near to them as
// the placement allows, also after it was killed and is back; and while it is away, nobody
// waits for it and local shares hold.
func TestSharesOfTheCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	t.Cleanup(cancel)
	policy := "rules:\n"
	for _, a := range contest {
		policy += fmt.Sprintf("  - {flow: %s, weight: %d}\n", a.flow(), a.weight)
	}
	if err := setPolicy(policy); err != nil {
		t.Fatal(err)
	}
	stop := write(ctx, t)
	slow(t)
	inForce := func(want bool) func() bool {
		return func() bool {
			for i := range bed.daemons {
				if c := look(t, i).Cluster; c.InForce != want || want && c.Policy < 2 {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the totals are in force on every node", inForce(true))
	window := func() judge.Window {
		time.Sleep(settling)
		from := disk.Monotonic()
		time.Sleep(measured)
		return judge.Window{From: from, To: disk.Monotonic()}
	}
	windows := []judge.Window{window()}

	if err := bed.broker.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the nodes go on by local shares", inForce(false))
	windows = append(windows, window())

	begin := time.Now()
	if err := startBroker(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the totals are in force again", func() bool {
		for i := range bed.daemons {
			if !look(t, i).Cluster.InForce {
				return false
			}
		}
		return true
	})
	t.Logf("the broker's start to totals in force everywhere: %.1f s", time.Since(begin).Seconds())
	windows = append(windows, window())
	for i := range bed.daemons {
		for _, d := range look(t, i).Devices {
			for _, f := range d.Flows {
				t.Logf("node %d, %s: %s has weight %d, part %.2f", i, d.Name, f.Name, f.Weight, f.Part)
			}
		}
	}
	owners := blockOwners(ctx, t)
	stop()

	ideal := best(t)
	for i, name := range []string{"with the broker", "without", "with it again"} {
		got, local := judged(t, owners, windows[i])
		off, all := 0.0, 0.0
		for j := range got {
			all += got[j]
		}
		for j := range got {
			off += math.Abs(got[j]/all-ideal[j]/nodes) / 2
		}
		t.Logf("%s: %.2f %% of the service misplaced: totals %s of the service, due %s; by node %v", name, 100*off, parts(got, all), parts(ideal, nodes), local)
		if with := i != 1; with && off > 0.03 {
			t.Errorf("%s %.2f %% are misplaced, 3 %% may be", name, 100*off)
		} else if !with && off < 0.1 {
			t.Errorf("without it only %.2f %% are misplaced: the contest shows nothing", 100*off)
		}
	}
}

func parts(x []float64, all float64) (text string) {
	for _, v := range x {
		text += fmt.Sprintf(" %.3f", v/all)
	}
	return text
}

// best is what the placement allows, of what each disk gives, 1.
func best(t *testing.T) []float64 {
	t.Helper()
	var seekers []optimum.Seeker
	for _, a := range contest {
		seekers = append(seekers, optimum.Seeker{Weight: float64(a.weight), Devices: a.on})
	}
	totals, err := optimum.Totals(seekers, []float64{1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// write has every application write on each of its nodes until it is told to stop.
func write(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ending := make(chan struct{})
	var group sync.WaitGroup
	for _, a := range contest {
		for _, node := range a.on {
			for task := range tasks {
				group.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-ending:
							return
						default:
						}
						err := bed.clients.Run(ctx, "put", fmt.Sprintf("path=%s/%d-%d-%d attempt=%s bytes=%d block=%d replication=1 on=%s",
							a.dir(), node, task, i, client.Attempt(a.number), 2*block, block, bed.cluster.DataNodeAddress(node)))
						if err != nil {
							t.Errorf("a task of application %d on node %d: %v", a.number, node, err)
							return
						}
					}
				})
			}
		}
	}
	stop = sync.OnceFunc(func() {
		close(ending)
		group.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func (a application) dir() string { return fmt.Sprintf("/application-%d", a.number) }

var blockName = regexp.MustCompile(`blk_\d+`)

// blockOwners tells whose the block files are, by the NameNode's word.
func blockOwners(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	owners := map[string]int{}
	for i, a := range contest {
		q := url.Values{"ugi": {"root"}, "path": {a.dir()}, "files": {"1"}, "blocks": {"1"}, "openforwrite": {"1"}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, bed.cluster.NameNodeURL()+"/fsck?"+q.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 16*mib))
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("fsck: %s: %v", resp.Status, err)
		}
		names := blockName.FindAllString(string(body), -1)
		if len(names) == 0 {
			t.Fatalf("the NameNode knows no blocks of %s", a.dir())
		}
		for _, name := range names {
			owners[name] = i
		}
	}
	return owners
}

// judged is what each application had of the disks in a window by their own logs, in
// disks: a disk's service between the applications is 1.
func judged(t *testing.T, owners map[string]int, window judge.Window) (totals []float64, byNode []string) {
	t.Helper()
	totals = make([]float64, len(contest))
	for _, d := range bed.disks {
		records, err := judge.ReadLog(d)
		if err != nil {
			t.Fatal(err)
		}
		w := judge.NewWatcher(d.Mount())
		if err := w.Look(); err != nil {
			t.Fatal(err)
		}
		account := w.Judge(records, func(path string) string {
			if i, ok := owners[blockName.FindString(filepath.Base(path))]; ok {
				return contest[i].flow()
			}
			return ""
		}, window)[0]
		all := 0.0
		had := make([]float64, len(contest))
		for i, a := range contest {
			had[i] = account.Owners[a.flow()].Service.Seconds()
			all += had[i]
		}
		if busy := all / (float64(window.To-window.From) / 1e9); busy < 0.9 {
			t.Errorf("the disk was busy for the applications for %.2f of the time only", busy)
		}
		for i := range had {
			totals[i] += had[i] / all
		}
		byNode = append(byNode, parts(had, all))
	}
	return totals, byNode
}
