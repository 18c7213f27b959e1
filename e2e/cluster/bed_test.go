package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"penstock/lab/bench/coordination"
	"penstock/lab/disk"
	"penstock/lab/stand"
)

// bed is what the tests share.
var bed struct {
	dir string
	*coordination.Machine
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(stand.Run(m, &bed.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if bed.dir, err = os.MkdirTemp("", "penstock-cluster-"); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	bed.Machine, err = coordination.Start(ctx, coordination.Place{
		Dir: bed.dir, Binary: filepath.Join(root, "bin", "penstock"), AgentJar: filepath.Join(root, "bin", "penstock-agent.jar"),
		Cache: filepath.Join(root, ".cache"), Progress: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	return err
}

var tearDown = sync.OnceValue(func() error {
	if bed.Machine == nil {
		return nil
	}
	return bed.Stop()
})
