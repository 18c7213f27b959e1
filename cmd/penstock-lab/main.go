// Command penstock-lab is the laboratory: modelled disks, real Hadoop and Spark on them,
// benchmarks against other schedulers, fault campaigns and a simulator. Nothing of it is
// part of the daemon.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/cmd/internal/noderun"
	"penstock/node/control/freezer"
	"penstock/ops/network"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock-lab",
		Short: "Penstock's laboratory: real Hadoop on modelled disks, benchmarks, simulator",
	}
	cli.Group(root, "Show", newDemoCommand(), newPlayCommand())
	cli.Group(root, "Bring up", newDiskCommand(), newHadoopCommand(), newSparkCommand(), newNodeCommand(), newClean())
	cli.Group(root, "Measure", newBenchCommand(), newSoakCommand(), newSimCommand(), newPlotCommand(), newResultsCommand())
	noderun.AddGate(root)
	return cli.Root(root)
}

// penstockBinary returns the path of the product, which lies beside this program.
func penstockBinary() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(filepath.Dir(own), "penstock")
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("penstock is not beside %s: %w (run make build)", own, err)
	}
	return binary, nil
}

func main() {
	freezer.RunIfHelper()
	network.RunIfWorker()
	cli.Main(newRoot())
}
