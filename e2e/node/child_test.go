package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/stand"
)

// This test's binary, started again, is a program that does not belong to Hadoop. It reads and
// writes a file without the page cache, as databases do: each direction at its own rate, with a few
// requests in flight. It begins when it reads a line, ends when it reads the next one, and prints
// how many bytes it has moved.

const (
	childCommand = "direct-io"
	childRequest = 256 << 10
	childFile    = 256 * fixture.MiB
	childThreads = 8
)

// childDone is how many bytes a child says that it has moved.
type childDone struct{ Read, Written int64 }

// useIfChild runs that program and exits, if this process was started as a child.
func useIfChild() {
	if len(os.Args) != 5 || os.Args[1] != childCommand {
		return
	}
	if err := use(os.Args[2], os.Args[3], os.Args[4], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, childCommand+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func use(path, readRate, writeRate string, in io.Reader, out io.Writer) error {
	rates := [2]float64{}
	for i, text := range []string{readRate, writeRate} {
		var err error
		if rates[i], err = strconv.ParseFloat(text, 64); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(in)
	lines.Scan()
	var mu sync.Mutex
	var done [2]int64
	var failed error
	began := time.Now()
	ended := make(chan struct{})
	var group sync.WaitGroup
	for range childThreads {
		group.Go(func() {
			buffer := aligned(childRequest)
			for {
				select {
				case <-ended:
					return
				default:
				}
				mu.Lock()
				// The direction that is further behind its rate is next, at its due time.
				due := [2]time.Time{}
				for i := range due {
					due[i] = began.Add(time.Duration(float64(done[i]) / rates[i] * float64(time.Second)))
				}
				way := 0
				if due[1].Before(due[0]) {
					way = 1
				}
				done[way] += childRequest
				mu.Unlock()
				select {
				case <-ended:
				case <-time.After(time.Until(due[way])):
				}
				var err error
				if at := rand.Int64N(childFile/childRequest) * childRequest; way == 1 {
					_, err = file.WriteAt(buffer, at)
				} else {
					_, err = file.ReadAt(buffer, at)
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	lines.Scan()
	close(ended)
	group.Wait()
	if failed != nil {
		return failed
	}
	return json.NewEncoder(out).Encode(childDone{done[0], done[1]})
}

// aligned returns memory with the alignment that O_DIRECT needs.
func aligned(size int) []byte {
	const page = 4096
	b := make([]byte, size+page)
	skip := page - int(uintptr(unsafe.Pointer(&b[0]))%page)
	return b[skip : skip+size]
}

// child is a running child process.
type child struct {
	pid    int
	cgroup string // its path below the hierarchy
	in     io.WriteCloser

	exited <-chan struct{}
	cmd    *exec.Cmd
}

// startChild starts the program on a file, in its own cgroup. Rates are in bytes per second.
func startChild(t *testing.T, path string, readRate, writeRate float64) *child {
	t.Helper()
	own, err := os.Executable()
	fixture.Must(t, err)
	c := &child{cmd: exec.Command(own, childCommand, path, fmt.Sprint(readRate), fmt.Sprint(writeRate))}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "done"))
	fixture.Must(t, err)
	t.Cleanup(func() { out.Close() })
	c.cmd.Stdout = out
	folder := cgroupFolder(t)
	c.cgroup = "/" + filepath.Base(folder)
	if c.exited, err = shared.Book.Spawn(c.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.in.Close()
		<-c.exited
	})
	c.pid = c.cmd.Process.Pid
	fixture.Must(t, os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(c.pid)), 0))
	return c
}

// makeFile makes and fills the file that children use, before I/O is counted.
func makeFile(d *disk.Disk) (path string, err error) {
	path = filepath.Join(d.Mount(), "direct")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{}), childFile); err != nil {
		return "", err
	}
	return path, f.Sync()
}

// cgroupFolder makes a cgroup for the test in a hierarchy in which the kernel counts I/O by cgroup.
func cgroupFolder(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "blkio")); err == nil {
		root = filepath.Join(root, "blkio")
	}
	folder := filepath.Join(root, fmt.Sprintf("penstock-traffic-%d-%d", os.Getpid(), time.Now().UnixNano()))
	fixture.Must(t, os.Mkdir(folder, 0o755))
	id, err := shared.Book.Remove(folder)
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, shared.Book.Undo(id))
	})
	return folder
}

// begin makes the child start its I/O.
func (c *child) begin(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "begin\n"); err != nil {
		t.Fatal(err)
	}
}

// end makes the child stop, and returns what it has done.
func (c *child) end(t *testing.T) (done childDone) {
	t.Helper()
	if _, err := io.WriteString(c.in, "end\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.exited:
	case <-time.After(stand.Patience):
		t.Fatalf("the child did not end within %v", stand.Patience)
	}
	text, err := os.ReadFile(c.cmd.Stdout.(*os.File).Name())
	if err == nil {
		err = json.NewDecoder(strings.NewReader(string(text))).Decode(&done)
	}
	if err != nil || !c.cmd.ProcessState.Success() {
		t.Fatalf("the child ended as %v: %q, %v", c.cmd.ProcessState, text, err)
	}
	return done
}
