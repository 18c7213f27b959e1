package parallel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/lab/pagerank"
)

// TestPageRank: the job of the benchmark has the ranks that package pagerank computes. It runs in one JVM, on a folder.
func TestPageRank(t *testing.T) {
	dir := t.TempDir()
	lib, err := hadoop.Fetch(t.Context(), cache, hadoop.DefaultVersion, t.Logf)
	fixture.Must(t, err)
	classes := filepath.Join(dir, "classes")
	fixture.Must(t, pagerank.Compile(t.Context(), lib, classes))
	graph := pagerank.New(1, 1<<18)
	const files, iterations = 3, 2
	fixture.Must(t, os.Mkdir(filepath.Join(dir, "ranks0"), 0o755))
	for i := range files {
		f, err := os.Create(filepath.Join(dir, "ranks0", fmt.Sprintf("part-%05d", i)))
		fixture.Must(t, err)
		fixture.Must(t, graph.Write(f, i, files))
		fixture.Must(t, f.Close())
	}
	for i := range iterations {
		argv := []string{"-Xmx400m", "-cp", classes + ":" + lib + "/*", "PageRank", "-D", "mapreduce.framework.name=local", "-D", "hadoop.tmp.dir=" + filepath.Join(dir, "tmp"),
			fmt.Sprintf("file://%s/ranks%d", dir, i), fmt.Sprintf("file://%s/ranks%d", dir, i+1)}
		cmd := exec.CommandContext(t.Context(), "java", argv...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("iteration %d: %v\n%s", i+1, err, out)
		}
		graph.Iterate()
	}
	out, err := os.Open(filepath.Join(dir, fmt.Sprintf("ranks%d", iterations), "part-r-00000"))
	fixture.Must(t, err)
	defer out.Close()
	fixture.Check(t, graph.Check(out))
}
