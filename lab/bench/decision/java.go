package decision

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The agent's benchmark is compiled when it is run, because no installed jar contains it.
//
//go:embed java/penstock/core/DecisionBench.java
var benchSource []byte

const benchClass = "penstock.core.DecisionBench"

// javaMissing returns an error with the reason if the agent's side cannot be measured on this
// machine.
func javaMissing(agentJar string) error {
	for _, tool := range []string{"java", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s on the PATH: install a JDK, 17 or later", tool)
		}
	}
	if _, err := os.Stat(agentJar); err != nil {
		return fmt.Errorf("the agent: %w (run make build, or name it with --agent-jar)", err)
	}
	return nil
}

// measureAgent compiles and runs the benchmark of the agent's side in dir.
func measureAgent(ctx context.Context, dir, agentJar string, trips int) (timings []Timing, err error) {
	echoPath, stopEcho, err := echo(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopEcho()) }()
	quiet, stopQuiet, err := serve(ctx, dir, "quiet.sock", 1<<30)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopQuiet()) }()
	usual, stopUsual, err := serve(ctx, dir, "usual.sock", 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopUsual()) }()

	source := filepath.Join(dir, "DecisionBench.java")
	if err := os.WriteFile(source, benchSource, 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-proc:none", "-d", dir, "-cp", agentJar, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac, for the agent's benchmark (is %s of this build?): %w: %s", agentJar, err, out)
	}
	cmd := exec.CommandContext(ctx, "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-cp", dir+string(os.PathListSeparator)+agentJar, benchClass, echoPath, quiet.path, usual.path, strconv.Itoa(trips))
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("java %s: %w: %s", benchClass, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return parseTimings(&stdout)
}

// parseTimings parses the benchmark's lines: name, p50, p99 and count, separated by tabs.
func parseTimings(r io.Reader) ([]Timing, error) {
	var timings []Timing
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("the agent's benchmark: %q is not a name and three numbers", lines.Text())
		}
		p50, err50 := strconv.ParseFloat(fields[1], 64)
		p99, err99 := strconv.ParseFloat(fields[2], 64)
		n, errN := strconv.Atoi(fields[3])
		if err := errors.Join(err50, err99, errN); err != nil {
			return nil, fmt.Errorf("the agent's benchmark: %q: %w", lines.Text(), err)
		}
		if fields[0] == "" || !(p50 > 0 && p99 >= p50 && p99 < 1e15) || n < 1 {
			return nil, fmt.Errorf("the agent's benchmark: %q is out of range", lines.Text())
		}
		timings = append(timings, Timing{fields[0], p50, p99, n})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the agent's benchmark: %w", err)
	}
	return timings, nil
}
