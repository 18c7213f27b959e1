// Package containers runs Hadoop in containers with addresses of their own: a DataNode and a NodeManager in each of two
// network namespaces, behind a router that translates addresses, with joined connections. The four jobs of the
// benchmark must succeed, every byte of their outputs must be as written, and the connections between the containers
// must really have been joined.
package containers

import (
	"os"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bench/containers"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/ops/network"
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	network.RunIfWorker()
	os.Exit(m.Run())
}

func TestHadoopInContainers(t *testing.T) {
	setup := containers.DefaultSetup()
	setup.Nodes, setup.Rate, setup.Bytes = []int{2}, 40_000_000, 32*fixture.MiB
	var q containers.Request
	q.Setup = setup
	q.TableRequest = experiment.TableRequest{Rows: []string{"2-joined"}, Runs: 1, Dir: filepath.Join(t.TempDir(), "run"), Progress: t.Logf}
	r, err := containers.Perform(t.Context(), q)
	fixture.Must(t, err)
	if len(r.Turns) != 1 || len(r.Turns[0].Jobs) != 4 {
		t.Fatalf("%+v", r.Turns)
	}
	for _, j := range r.Turns[0].Jobs {
		if !(j.RunS > 0 && j.MBPerSecond > 0 && j.CPU > 0 && j.CPU <= 1 && j.Disks > 0 && j.Disks <= 1 && j.SwitchesPerSecond > 0 && j.RunDelayUS > 0 && j.Trip.Trips > 0 && j.Trip.P50US > 0) {
			t.Errorf("%+v", j)
		}
		if j.Kind == hadoop.TestDFSIOWrite && j.JoinedMB < 1 {
			t.Errorf("the second replicas were written past the joined connections: %+v", j)
		}
	}
}
