package hadoop

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"penstock/lab/poll"
)

// A process that looks like a task is one only if the cluster's run has started it.
func TestTasks(t *testing.T) {
	c := testCluster(t, Config{})
	app := c.Application("application_1700000000000_0007")
	task := func(attempt string, mark ...string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", "read forever", "org.apache.hadoop.mapred.YarnChild", "127.0.0.1", attempt, "-Dyarn.app.container.log.dir=/logs/1")
		cmd.Env = mark
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); cmd.Wait() })
		return cmd
	}
	task("attempt_1700000000000_0007_m_000001_0")
	task("attempt_1700000000000_0008_m_000001_0", c.book.Mark())
	ours := task("attempt_1700000000000_0007_r_000001_0", c.book.Mark())
	var got []Task
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := poll.Until(ctx, 10*time.Millisecond, func() (_ bool, err error) {
		got, err = app.Tasks()
		return len(got) > 0, err
	}); err != nil {
		t.Fatal(err)
	}
	if want := (Task{"attempt_1700000000000_0007_r_000001_0", ours.Process.Pid, filepath.Join("/logs", "1")}); len(got) != 1 || got[0] != want || !got[0].Reduce() {
		t.Errorf("%+v, want %+v", got, want)
	}
}
