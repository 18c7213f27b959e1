package network

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is a worker process as its parent sees it.
type process struct {
	pid     int
	stop    func() error // ends the process
	in, out *os.File
	answers *bufio.Reader
	errors  *os.File
	threads []int // that were prepared since the last actEnd
}

// maxAnswer bounds a worker's line, which holds at most a histogram.
const maxAnswer = 4 << 20

// launch starts a worker's process, and returns its PID and a function that ends it.
type launch func(*exec.Cmd) (pid int, end func() error, err error)

// alone starts a process in a network namespace of its own.
func alone(cmd *exec.Cmd) (pid int, end func() error, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return together(cmd)
}

// together starts a process in the network namespace of the calling thread.
func together(cmd *exec.Cmd) (pid int, end func() error, err error) {
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() error {
		_ = cmd.Process.Kill() // an error means that it has ended
		_ = cmd.Wait()         // likewise, its exit status says that it was killed
		return nil
	}, nil
}

// startProcess starts a worker.
func startProcess(start launch) (_ *process, err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, cmd := &process{}, exec.Command(own)
	// Two threads of a stream, one of the operations, and one that reads orders; signals between them would
	// interrupt system calls.
	cmd.Env = append(os.Environ(), workerVariable+"=1", "GOMAXPROCS=4", "GODEBUG=asyncpreemptoff=1")
	var ends []*os.File
	defer func() {
		for _, f := range ends {
			f.Close()
		}
		if err != nil {
			err = fmt.Errorf("start a process for an end of connections: %w%s", err, p.said())
			p.closeFiles()
		}
	}()
	var in, out, errs *os.File
	if in, p.in, err = os.Pipe(); err != nil {
		return nil, err
	}
	ends = append(ends, in)
	if p.out, out, err = os.Pipe(); err != nil {
		return nil, err
	}
	ends = append(ends, out)
	if p.errors, errs, err = os.Pipe(); err != nil {
		return nil, err
	}
	ends = append(ends, errs)
	p.answers = bufio.NewReaderSize(p.out, 64<<10)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	p.pid, p.stop, err = start(cmd)
	return p, err
}

// order sends an order and waits for the answer, at most for the given time.
func (p *process) order(o order, limit time.Duration) (a answer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("process %d, order %q: %w%s", p.pid, o.Action, err, p.said())
		}
	}()
	if err := p.in.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return answer{}, err
	}
	if err := json.NewEncoder(p.in).Encode(o); err != nil {
		return answer{}, err
	}
	if err := p.out.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return answer{}, err
	}
	line, err := p.answers.ReadSlice('\n')
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) && len(long) < maxAnswer {
		long = append(long, line...)
		line, err = p.answers.ReadSlice('\n')
	}
	if err != nil {
		return answer{}, err
	}
	if err := json.Unmarshal(slices.Concat(long, line), &a); err != nil {
		return answer{}, err
	}
	if a.Error != "" {
		return answer{}, errors.New(a.Error)
	}
	if a.Thread > 0 {
		p.threads = append(p.threads, a.Thread)
	}
	if o.Action == actEnd {
		p.threads = nil
	}
	return a, nil
}

// said returns what the process has written to standard error.
func (p *process) said() string {
	if p.errors == nil {
		return ""
	}
	b := make([]byte, 4096)
	if err := p.errors.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		return ""
	}
	n, _ := p.errors.Read(b)
	if n == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(b[:n]))
}

// end ends the process. No state of the process needs anything to be put back.
func (p *process) end() error {
	defer p.closeFiles()
	return p.stop()
}

func (p *process) closeFiles() {
	for _, f := range []*os.File{p.in, p.out, p.errors} {
		if f != nil {
			f.Close()
		}
	}
}
