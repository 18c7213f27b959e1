package parallel

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/storage"
)

// TestSpark: Spark on YARN sorts lines on the file system, with the executors' local directories on it, too. Its tasks run beside
// their data, and the output has the lines of the input.
func TestSpark(t *testing.T) {
	each(t, func(t *testing.T, m *storage.Machines, fs fileSystem) {
		// A host has the memory for one executor of 1536 MB and for the ApplicationMaster of 1024 MB, so each host gets one executor.
		c := start(t, m, fs.layout, func(cfg *hadoop.Config) {
			cfg.TaskSlots = 4 // 2560 MB
			cfg.Settings["yarn.scheduler.capacity.root."+hadoop.QueueProtected+".maximum-capacity"] = "100"
			cfg.Settings["yarn.scheduler.capacity.root."+hadoop.QueueProtected+".user-limit-factor"] = "2"
		})
		const files, linesOfFile = 9, 100_000
		for i := range files {
			m.Run(t, i%len(m.Hosts), "sh", "-c", `mkdir -p "$0" && seq -f "line %.0f of the input" "$1" "$2" >"$0/part-$1"`,
				filepath.Join(c.root, "lines"), strconv.Itoa(i*linesOfFile+1), strconv.Itoa((i+1)*linesOfFile))
		}
		home, err := spark.Fetch(t.Context(), cache, spark.Version, t.Logf)
		fixture.Must(t, err)
		jar, err := filepath.Abs(jarFile)
		fixture.Must(t, err)
		s, err := spark.Start(t.Context(), spark.Config{RunDir: filepath.Join(m.Dir, "spark"), Home: home, Cluster: c.Cluster, Machine: m.Hosts[0], Progress: t.Logf,
			Settings: map[string]string{"spark.driver.extraClassPath": jar, "spark.executor.extraClassPath": jar,
				"spark.executor.memory": "512m", "spark.executor.memoryOverhead": "1000m",
				// Spark starts when all executors are there, and waits for a slot beside the data. By default it waits for 30 s
				// and for 3 s, and an executor's first task can take longer than that on busy CPUs.
				"spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "5m", "spark.locality.wait": "5m"}})
		fixture.Must(t, err)
		t.Cleanup(func() { fixture.Check(t, s.Stop()) })
		script, err := spark.Script(t.TempDir(), spark.Sort)
		fixture.Must(t, err)
		sort, err := s.Submit(t.Context(), spark.Job{Name: "sort", Script: script, Queue: hadoop.QueueProtected, Executors: len(m.Hosts),
			Args: []string{"shared:///lines", "shared:///sorted", "4"}})
		fixture.Must(t, err)
		fixture.Must(t, sort.Wait(t.Context()))
		got, err := s.Counters(sort)
		fixture.Must(t, err)
		t.Logf("%+v", got)
		if got.Readers < files || 10*got.LocalReaders < 9*got.Readers {
			t.Errorf("%d of %d tasks that read were local", got.LocalReaders, got.Readers)
		}
		sum := func(dir string) string {
			return m.Run(t, 1, "sh", "-c", "cat "+filepath.Join(c.root, dir, "part-*")+" | LC_ALL=C sort | sha256sum")
		}
		if was, is := sum("lines"), sum("sorted"); was != is {
			t.Errorf("the lines have the checksum %s before and %s after", strings.TrimSpace(was), strings.TrimSpace(is))
		}
	})
}
