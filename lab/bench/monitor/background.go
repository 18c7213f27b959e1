package monitor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"penstock/lab/client"
	"penstock/lab/process"
)

// background is an activity that runs beside WordCount.
type background struct {
	ended <-chan struct{} // closed when the activity has ended by itself
	why   func() error    // returns why the activity has ended; call it after ended is closed
	stop  func()
}

// joining returns a command that runs another command in a cgroup and on the background's CPU, with
// variables added to its environment.
func (m *machine) joining(cgroup string, variables ...string) []string {
	return append([]string{"sh", "-c", `echo 0 >"$0" && exec "$@"`, filepath.Join(cgroup, "cgroup.procs"),
		"taskset", "-c", strconv.Itoa(m.setup.BackgroundCPU), "env"}, variables...)
}

//go:embed Contained.java
var contained []byte

// compileContained compiles the program of the container of HDFS clients.
func (m *machine) compileContained(ctx context.Context) error {
	return client.CompileSources(ctx, m.Lib, m.Classes, map[string][]byte{"Contained.java": contained})
}

// begin starts a background activity.
func (m *machine) begin(a Activity) (*background, error) {
	if a.local() {
		return m.beginLocal(a)
	}
	return m.beginHDFS(a)
}

func (m *machine) beginLocal(a Activity) (*background, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	does := map[bool]string{true: "write", false: "read"}[a == FioWriter]
	p, err := process.Start(process.Options{Book: m.Book, Name: string(a), Log: m.Path(string(a) + ".log")},
		append(m.joining(m.fio.Path), own, "bench", "monitor", "load", does, m.local(), strconv.Itoa(m.setup.FioJobs))...)
	if err != nil {
		return nil, err
	}
	return &background{ended: p.Exited(), why: p.Failure, stop: p.Kill}, nil
}

func (m *machine) beginHDFS(a Activity) (*background, error) {
	jvm, err := client.Start(client.Options{Book: m.Book, Lib: m.Lib, Classes: m.Classes + ":" + m.Spec.AgentJar,
		Conf: m.Hadoop.ClientConfDir(), Temp: m.Dir, Log: m.Path(fmt.Sprintf("%s-%d.log", a, m.jobs)), Main: []string{"Contained"},
		Under: m.joining(m.container.Path, "CONTAINER_ID="+filepath.Base(m.container.Path), "LOCAL_DIRS="+m.Disks[1].Mount())})
	if err != nil {
		return nil, err
	}
	ended, once := make(chan struct{}), sync.Once{}
	var failure error
	operation, args := "get", fmt.Sprintf("path=%s attempt=%s seed=%d", backgroundFile, client.Attempt(backgroundNumber), seed)
	if a == HDFSWriter {
		operation, args = "put", m.putArgs(writtenFile, m.setup.BackgroundBytes)
	}
	jvm.Do(operation, args, func(event, value string) {
		if event != "done" && event != "error" {
			return
		}
		once.Do(func() {
			if failure = errors.New("the HDFS client has processed its whole file: make the background's file larger"); event == "error" {
				failure = errors.New(value)
			}
			close(ended)
		})
	})
	return &background{ended: ended, why: func() error { return failure }, stop: jvm.Stop}, nil
}

// within calls do. If the background ends before do returns, within cancels the context of do, and returns an
// error.
func (b *background) within(ctx context.Context, do func(context.Context) error) error {
	if b == nil {
		return do(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-b.ended:
			cancel(fmt.Errorf("the background has ended too early: %w", b.why()))
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return err
}
