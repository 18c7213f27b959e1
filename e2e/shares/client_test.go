package shares

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
)

// client is a Hadoop client in its own JVM that carries a task's id. It does what a task of that
// application does, without YARN.
type client struct {
	flow string // the application's id
	what string
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
	err  error
	in   *endless // of a writer
}

// application returns the id of an application, by its number.
func application(number int) string { return fmt.Sprintf("application_1700000000000_%04d", number) }

// shell starts `hadoop fs` as a task of an application.
func (c *cluster) shell(t *testing.T, app int, stdin io.Reader, args ...string) *client {
	t.Helper()
	p := &client{flow: application(app), what: fmt.Sprint("hadoop fs ", args), done: make(chan struct{})}
	argv := append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-cp", c.Hadoop.ClientConfDir() + ":" + c.Lib + "/*", "org.apache.hadoop.fs.FsShell",
		"-D", fmt.Sprintf("mapreduce.task.attempt.id=attempt_1700000000000_%04d_m_000000_0", app)}, args...)
	p.cmd = exec.Command("java", argv...)
	p.cmd.Stdin, p.cmd.Stderr = stdin, &p.out
	p.cmd.WaitDelay = time.Second // do not wait for the end of its input
	id, err := c.Book.StartProcess(p.cmd)
	fixture.Must(t, err)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		fixture.Check(t, c.Book.Undo(id))
	})
	return p
}

// put is a writer that always has more to write, until it is ended.
func (c *cluster) put(t *testing.T, app int, path string) *client {
	t.Helper()
	c.remove(t, path) // registered first, so that it runs last
	input := &endless{}
	p := c.shell(t, app, input, "-put", "-d", "-", path)
	p.in = input
	return p
}

// endless is a reader of zeros until full is set.
type endless struct{ full atomic.Bool }

func (e *endless) Read(p []byte) (int, error) {
	if e.full.Load() {
		return 0, io.EOF
	}
	return zeros{}.Read(p)
}

// cat is a reader that reads as fast as it can.
func (c *cluster) cat(t *testing.T, app int, path string) *client {
	t.Helper()
	return c.shell(t, app, nil, "-cat", path)
}

func (p *client) name() string { return p.flow }

// running fails the test if the client has ended.
func (p *client) running(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("%s ended too early: %v: %s", p.what, p.err, p.out.Bytes())
	default:
	}
}

// finish waits for the client. It ends the input of a writer first.
func (p *client) finish(t *testing.T) {
	t.Helper()
	if p.in != nil {
		p.in.full.Store(true)
	}
	select {
	case <-p.done:
		if p.err != nil && !errors.Is(p.err, exec.ErrWaitDelay) {
			t.Fatalf("%s: %v: %s", p.what, p.err, p.out.Bytes())
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s has not ended after a minute", p.what)
	}
}
