package hadoop

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed dist/pom.xml
var pom []byte

// Fetch makes sure that Hadoop's jars lie in the cache and returns their
// folder, cacheDir/hadoop-<version>/lib. The first time it runs Maven, which
// takes its repositories and mirrors from the user's own settings; later calls
// are instant. Two processes may fetch at once: the folder appears whole, by a
// rename.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (lib string, err error) {
	if progress == nil {
		progress = func(string, ...any) {}
	}
	cacheDir, err = filepath.Abs(cacheDir)
	if err != nil {
		return "", err
	}
	home := filepath.Join(cacheDir, "hadoop-"+Version)
	lib = filepath.Join(home, "lib")
	if complete(lib) {
		return lib, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("hadoop: Maven (mvn) fetches Hadoop %s the first time and is not installed: %w", Version, err)
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cacheDir, "fetch-hadoop-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return "", err
	}
	progress("Hadoop %s: fetching about 180 jars (110 MB) with Maven into %s, once", Version, lib)
	begin := time.Now()
	if err := runMaven(ctx, work, progress); err != nil {
		return "", err
	}
	staged := filepath.Join(work, "lib")
	if !complete(staged) {
		return "", fmt.Errorf("hadoop: Maven ended well, but %s has no hadoop-hdfs-%s.jar", staged, Version)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(staged, lib); err != nil && !complete(lib) {
		return "", err
	}
	progress("Hadoop %s: fetched in %.0f s", Version, time.Since(begin).Seconds())
	return lib, nil
}

func complete(lib string) bool {
	for _, jar := range []string{"hadoop-hdfs-", "hadoop-mapreduce-examples-", "hadoop-yarn-server-timelineservice-"} {
		if _, err := os.Stat(filepath.Join(lib, jar+Version+".jar")); err != nil {
			return false
		}
	}
	return true
}

// runMaven copies the runtime dependencies into work/lib and says every five
// seconds how many have been downloaded.
func runMaven(ctx context.Context, work string, progress func(string, ...any)) error {
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-f", filepath.Join(work, "pom.xml"),
		"dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(work, "lib"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	var tail []string
	jars, said := 0, time.Now()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, "Downloaded from") && strings.Contains(line, ".jar") {
			jars++
		}
		if !strings.Contains(line, "Download") {
			if tail = append(tail, line); len(tail) > 20 {
				tail = tail[1:]
			}
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			progress("  %d jars downloaded", jars)
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("hadoop: mvn dependency:copy-dependencies: %w; its last lines:\n%s", err, strings.Join(tail, "\n")))
	}
	return nil
}
