package overhead

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"penstock/lab/stand"
)

// The load is compiled when it is run: it belongs to no jar that anybody
// installs.
//
//go:embed java/OverheadClient.java
var clientSource []byte

// client is the JVM that reads, writes and runs jobs, one command at a time.
type client struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
	exited  <-chan struct{}
	log     string
}

const clientPatience = 10 * time.Second

// startClient compiles and starts it, bound to a CPU unless that is "". local is
// a folder for the jobs' own intermediate files.
func startClient(ctx context.Context, s *stand.Stand, local, cpu string) (*client, error) {
	source := s.Path("OverheadClient.java")
	if err := os.WriteFile(source, clientSource, 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-proc:none", "-d", s.Dir, "-cp", s.Lib+"/*", source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac (a JDK, 17 or later, is needed): %w: %s", err, out)
	}
	p := &client{log: s.Path("client.log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	argv := []string{"java", "-Xmx1500m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=" + local,
		"-cp", strings.Join([]string{s.Dir, s.Hadoop.ClientConfDir(), s.Lib + "/*"}, ":"), "OverheadClient", local}
	if cpu != "" {
		argv = append([]string{"taskset", "-c", cpu}, argv...)
	}
	out, write := io.Pipe()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = local, write, log, clientPatience
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.answers = bufio.NewScanner(out)
	if p.exited, err = s.Book.Spawn(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		<-p.exited
		write.Close()
	}()
	return p, nil
}

// do sends a command and waits for its answer. An interrupted one leaves the
// client good for nothing but stop.
func (p *client) do(ctx context.Context, words ...string) (took time.Duration, bytes int64, err error) {
	command, got := strings.Join(words, " "), make(chan error, 1)
	var answer string
	go func() {
		_, err := fmt.Fprintln(p.in, command)
		if err == nil && !p.answers.Scan() {
			err = errors.Join(errors.New("the client ended"), p.answers.Err())
		}
		answer = p.answers.Text()
		got <- err
	}()
	select {
	case err = <-got:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	if err == nil {
		took, bytes, err = parseAnswer(answer)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w (its messages are in %s)", command, err, p.log)
	}
	return took, bytes, err
}

// parseAnswer reads "ok NANOSECONDS BYTES" or "error TEXT".
func parseAnswer(line string) (took time.Duration, bytes int64, err error) {
	if text, failed := strings.CutPrefix(line, "error "); failed {
		return 0, 0, errors.New(text)
	}
	words := strings.Split(line, " ")
	if len(words) != 3 || words[0] != "ok" {
		return 0, 0, fmt.Errorf("the client's answer %q is not one", line)
	}
	nanos, err1 := strconv.ParseInt(words[1], 10, 64)
	bytes, err2 := strconv.ParseInt(words[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("the client's answer %q: %w", line, err)
	}
	if nanos <= 0 || bytes < 0 {
		return 0, 0, fmt.Errorf("the client's answer %q is out of range", line)
	}
	return time.Duration(nanos), bytes, nil
}

// stop ends the client: by the end of its input, or else by force.
func (p *client) stop() {
	p.in.Close()
	select {
	case <-p.exited:
	case <-time.After(clientPatience):
		p.cmd.Process.Kill()
		<-p.exited
	}
}
