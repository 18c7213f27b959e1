package phases

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/stand"
)

// shared is one node: the directories of HDFS and YARN are on one modelled disk, and everything
// is prepared by `penstock install`.
var shared fixture.Stand

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:   "phases",
		Public: true, // containers run as other users and must reach the disk
		Disks:  []disk.Options{{Name: "disk", Size: 6 << 30, Scheduler: "mq-deadline"}},
		Nodes: func(s *stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", Weights: "default: 10\n",
				More: fmt.Sprintf("identity: {spark_dirs: [%s]}\nnetwork: {rate: 1000MiB}\n", spark.WorkDir(sparkDir(s)))}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{
				DataNodes: s.DataNodes("dfs"), LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")},
				Governed:  s.Governed(0),
				TaskSlots: 7, // a Spark executor is as large as three tasks
			}
		},
		ClientClasses: true,
		Agents:        []int{2},
	}, nil)
}

// sparkDir returns the folder where a standalone Spark keeps its executors' files.
func sparkDir(s *stand.Stand) string { return filepath.Join(s.Disks[0].Mount(), "spark") }

// newSpark prepares Spark. The first call fetches it.
func newSpark(ctx context.Context, t *testing.T, standalone bool, settings map[string]string) *spark.Spark {
	t.Helper()
	home, err := spark.Fetch(ctx, shared.Spec.Cache, spark.Version, fixture.Say)
	fixture.Must(t, err)
	s, err := spark.Start(ctx, spark.Config{
		RunDir: shared.Path("spark"), Home: home, Cluster: shared.Hadoop, Standalone: standalone,
		LocalDir: sparkDir(shared.Stand), Governed: shared.Governed(0), Settings: settings, Progress: fixture.Say,
	})
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, s.Stop()) })
	return s
}

// script returns the path of one of Spark's programs.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := spark.Script(t.TempDir(), name)
	fixture.Must(t, err)
	return path
}
