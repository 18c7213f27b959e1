// Package client runs Hadoop's own HDFS client on demand.
//
// Tests need clients that belong to different applications, pause at a given byte, and verify each
// byte. A JVM per client is too expensive on a small machine, and WebHDFS shows nothing in the
// middle of a stream. So one JVM (Client.java) runs all clients. It reads commands from standard
// input and reports events on standard output. Each operation is a separate client. The client's
// name is that of a task of the application that the command names.
//
// The bytes of a file are a function of a seed and the position (Fill). So both this package and
// the JVM can compute any part of a file and verify file contents.
package client

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"penstock/lab/ledger"
)

//go:embed Client.java
var clientSource []byte

//go:embed Probe.java
var probeSource []byte

// Compile compiles the client into the folder dir, with the jars in lib. It needs the JDK's javac.
func Compile(ctx context.Context, lib, dir string) error {
	return CompileSources(ctx, lib, dir, map[string][]byte{"Client.java": clientSource, "Probe.java": probeSource})
}

// CompileSources compiles other sources in the same way. The keys of sources are the file names.
func CompileSources(ctx context.Context, lib, dir string, sources map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	argv := []string{"-nowarn", "-proc:none", "-d", dir, "-cp", lib + "/*"}
	for name, source := range sources {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, source, 0o644); err != nil {
			return err
		}
		argv = append(argv, file)
	}
	if out, err := exec.CommandContext(ctx, "javac", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile Java (needs javac of a JDK): %w: %s", err, out)
	}
	return nil
}

// Options are the options of the JVM.
type Options struct {
	Book    *ledger.Ledger // ledger of the JVM's run
	Lib     string         // folder of Hadoop's jars
	Classes string         // folder that Compile has filled
	Conf    string         // folder of the cluster's configuration
	Temp    string         // folder for temporary files
	Log     string         // file for all output other than events
	// Under is a command that runs java elsewhere or as another user. Java must be its last child,
	// and the command must end when java ends.
	Under []string
	// Main is a main class with its arguments, used instead of Client. It must use the same
	// protocol.
	Main []string
	// Heap is the JVM's maximum heap, in the form of -Xmx; default 256m.
	Heap string
	// Dir is the JVM's working directory; default: this process's.
	Dir string
}

// JVM is the process of the clients. Its methods may be called from any goroutine.
type JVM struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited <-chan struct{}

	mu      sync.Mutex
	next    int
	ended   bool
	running map[int]Take
}

// Take receives an operation's events, one at a time and in order: "progress" bytes, "reached"
// bytes (the operation has stopped at its limit), "done" answer, "error" text, and the probes' own
// events (see Probe.java). When the JVM ends, every operation receives an "error".
type Take func(event, value string)

// Start starts the JVM.
func Start(o Options) (*JVM, error) {
	args := []string{"-Xmx" + cmp.Or(o.Heap, "256m"), "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
		"-Djava.io.tmpdir=" + o.Temp, "-cp", strings.Join([]string{o.Conf, o.Classes, o.Lib + "/*"}, ":")}
	for _, p := range []string{"java.lang", "java.util", "java.io", "java.nio", "java.net", "sun.nio.ch"} {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	argv := slices.Concat(o.Under, []string{"java"}, args, o.Main)
	if o.Main == nil {
		argv = append(argv, "Client")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = o.Dir
	log, err := os.Create(o.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	c := &JVM{running: map[int]Take{}, cmd: cmd}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// cmd.StdoutPipe is not usable, because Wait closes it before the last events are read.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd.Stdout = write
	if c.exited, err = o.Book.Spawn(cmd); err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	go c.listen(stdout)
	return c, nil
}

const stopPatience = 10 * time.Second

// Stop ends the JVM with all its operations. It closes the JVM's input; if that is not enough, it
// sends a signal.
func (c *JVM) Stop() {
	c.stdin.Close()
	select {
	case <-c.exited:
	case <-time.After(stopPatience):
		c.cmd.Process.Kill()
		<-c.exited
	}
}

const lineMax = 1 << 20 // bytes; a file's list of blocks is one line

func (c *JVM) listen(stdout io.ReadCloser) {
	defer stdout.Close()
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(id)
		c.mu.Lock()
		take := c.running[n]
		c.mu.Unlock()
		if err == nil && take != nil {
			event, value, _ := strings.Cut(rest, " ")
			take(event, value)
		}
	}
	c.mu.Lock()
	c.ended = true
	left := c.running
	c.running = map[int]Take{}
	c.mu.Unlock()
	for _, take := range left {
		take("error", "the clients' JVM has ended")
	}
}

// Do starts an operation: "put", "get", "setrep", "blocks", "probe-write" or "probe-read". args are
// key=value, as described in Client.java and Probe.java.
func (c *JVM) Do(operation, args string, take Take) (id int) {
	c.mu.Lock()
	c.next++
	id = c.next
	if c.ended {
		c.mu.Unlock()
		take("error", "the clients' JVM has ended")
		return id
	}
	c.running[id] = take
	c.mu.Unlock()
	c.send(fmt.Sprintf("%d %s %s", id, operation, args))
	return id
}

// Run performs an operation and waits until the operation or ctx ends.
func (c *JVM) Run(ctx context.Context, operation, args string) error {
	_, err := c.Ask(ctx, operation, args)
	return err
}

// Ask is like Run, for an operation that ends with an answer.
func (c *JVM) Ask(ctx context.Context, operation, args string) (answer string, err error) {
	ended, found := make(chan error, 1), ""
	id := c.Do(operation, args, func(event, value string) {
		switch event {
		case "done":
			found = value
			ended <- nil
		case "error":
			ended <- errors.New(value)
		}
	})
	defer c.Forget(id)
	select {
	case err := <-ended:
		return found, err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Timed parses the value of a probe's event: when an operation began, and how long it took.
func Timed(value string) (begin time.Time, took time.Duration, err error) {
	start, length, _ := strings.Cut(value, " ")
	micros, err := strconv.ParseInt(start, 10, 64)
	nanos, err2 := strconv.ParseInt(length, 10, 64)
	if err := errors.Join(err, err2); err != nil || nanos < 0 {
		return time.Time{}, 0, fmt.Errorf("the probe reports %q: not a time and a duration", value)
	}
	return time.UnixMicro(micros), time.Duration(nanos), nil
}

// Limit raises the limit of an operation, in bytes; a negative limit lets it continue to its end.
func (c *JVM) Limit(id int, bytes int64) { c.send(fmt.Sprintf("%d to limit=%d", id, bytes)) }

// Forget stops passing on the operation's events.
func (c *JVM) Forget(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
}

func (c *JVM) send(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.stdin, line) // if the JVM has ended, every operation receives an error
}

// Sum returns the SHA-256 of a file's bytes, in hexadecimal.
func Sum(seed, bytes int64) string {
	h := sha256.New()
	buf := make([]byte, 64<<10)
	for pos := int64(0); pos < bytes; pos += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), bytes-pos)]
		Fill(buf, seed, pos)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Fill computes the bytes of a file from position pos on, which must be a multiple of 8. The bytes
// are SplitMix64 of the position (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014).
func Fill(buf []byte, seed, pos int64) {
	var word [8]byte
	for i := 0; i < len(buf); i += 8 {
		z := uint64(seed) + uint64((pos+int64(i))/8+1)*0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		copy(buf[i:], word[:])
	}
}

// Attempt returns the name of a task of the number-th application. The agent derives the
// application's id from it (see Application).
func Attempt(number int) string {
	return fmt.Sprintf("attempt_1700000000000_%04d_m_000000_0", number)
}

// Application returns the id of the number-th application.
func Application(number int) string { return fmt.Sprintf("application_1700000000000_%04d", number) }
