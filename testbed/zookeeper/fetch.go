package zookeeper

import (
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

// Version is the ZooKeeper release that runs.
const Version = "3.9.4"

//go:embed dist/pom.xml
var pom []byte

// Fetch makes sure that ZooKeeper's jars lie in the cache and returns their folder. The
// first time it runs Maven, which takes its repositories and mirrors from the user's own
// settings. Two processes may fetch at once: the folder appears whole, by a rename.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (lib string, err error) {
	if cacheDir, err = filepath.Abs(cacheDir); err != nil {
		return "", err
	}
	lib = filepath.Join(cacheDir, "zookeeper-"+Version)
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("zookeeper: Maven (mvn) fetches ZooKeeper %s the first time and is not installed: %w", Version, err)
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cacheDir, "fetch-zookeeper-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return "", err
	}
	begin := time.Now()
	if progress != nil {
		progress("ZooKeeper %s: fetching about 25 jars (13 MB) with Maven into %s, once", Version, lib)
	}
	made := filepath.Join(work, "lib")
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-ntp", "-f", filepath.Join(work, "pom.xml"), "-Dzookeeper.version="+Version,
		"dependency:copy-dependencies", "-DoutputDirectory="+made)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(ctx.Err(), fmt.Errorf("zookeeper: mvn dependency:copy-dependencies: %w; its last lines:\n%s", err, tail(string(out), 20)))
	}
	if err := os.Rename(made, lib); err != nil {
		if _, there := os.Stat(lib); there != nil { // else another process was first, which is as good
			return "", err
		}
	}
	if progress != nil {
		progress("ZooKeeper %s: fetched in %.0f s", Version, time.Since(begin).Seconds())
	}
	return lib, nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
