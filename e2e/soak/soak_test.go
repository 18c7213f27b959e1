// Package soak runs a short campaign of the laboratory's package soak: three kills from a fixed
// seed, with every judge. `make soak` runs long campaigns.
package soak

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"penstock/lab/bench/soak"
	"penstock/lab/disk"
	"penstock/lab/experiment/progress"
	"penstock/lab/stand"
)

// seed draws both kinds of kill, a long stop of the daemon and a cut connection.
const seed, kills = 54, 3

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	stand.Recover()
	os.Exit(m.Run())
}

func TestThreeKills(t *testing.T) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "penstock-soak-") // short, since a Unix socket's path is
	if err != nil {
		t.Fatal(err)
	}
	s := soak.DefaultSetup(seed, kills)
	s.TeraBytes, s.DFSIOBytes = 32<<20, 16<<20
	result, err := soak.Perform(ctx, soak.Request{
		Setup: s, Out: os.Stdout, JSON: filepath.Join(dir, "result.json"), Build: "test",
		Options: soak.Options{RunDir: dir, Progress: &progress.Log{Out: os.Stdout}},
	})
	if err != nil {
		t.Fatalf("%v; logs are kept in %s", err, dir)
	}
	defer os.RemoveAll(dir)
	if result.DaemonKill != 2 || result.NodeKill != 1 {
		t.Errorf("%d kills of the daemon and %d of DataNodes: the seed's plan has 2 and 1", result.DaemonKill, result.NodeKill)
	}
	if result.GateWaits == 0 || result.Files.Files == 0 {
		t.Errorf("%d waits at gates, %d files: the load has not met Penstock", result.GateWaits, result.Files.Files)
	}
	loads := 0
	for _, l := range result.Loads {
		loads += l.Rounds
	}
	if loads < 2 {
		t.Errorf("%d rounds of jobs, want one of each kind", loads)
	}
}
