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

// Fetch makes sure that a version's jars lie in the cache and returns their
// folder, cacheDir/hadoop-<version>/lib; the jars of its tests are in the folder
// beside it. An empty version is DefaultVersion. The first time it runs Maven,
// which takes its repositories and mirrors from the user's own settings; later
// calls are instant. Two processes may fetch at once: each folder appears whole,
// by a rename.
func Fetch(ctx context.Context, cacheDir, version string, progress func(format string, args ...any)) (lib string, err error) {
	if progress == nil {
		progress = func(string, ...any) {}
	}
	if version == "" {
		version = DefaultVersion
	}
	if err := CheckVersion(version); err != nil {
		return "", err
	}
	cacheDir, err = filepath.Abs(cacheDir)
	if err != nil {
		return "", err
	}
	home := filepath.Join(cacheDir, "hadoop-"+version)
	lib = filepath.Join(home, libFolder)
	if complete(home, version) {
		return lib, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("hadoop: Maven (mvn) fetches Hadoop %s the first time and is not installed: %w", version, err)
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
	progress("Hadoop %s: fetching about 180 jars (130 MB) with Maven into %s, once", version, home)
	begin := time.Now()
	if err := runMaven(ctx, work, version, progress); err != nil {
		return "", err
	}
	if err := setTestsApart(work); err != nil {
		return "", err
	}
	if !complete(work, version) {
		return "", fmt.Errorf("hadoop: Maven ended well, but not all of %q are in %s", essential(version), work)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	var errs []error
	for _, folder := range []string{libFolder, testsFolder} {
		// It fails if the folder is there already, from another process or an
		// earlier fetch; that one is as good.
		errs = append(errs, os.Rename(filepath.Join(work, folder), filepath.Join(home, folder)))
	}
	if !complete(home, version) {
		return "", errors.Join(append(errs, fmt.Errorf("hadoop: %s is incomplete: delete it, to have it fetched anew", home))...)
	}
	progress("Hadoop %s: fetched in %.0f s", version, time.Since(begin).Seconds())
	return lib, nil
}

// Folders of one version in the cache. Jars of tests bring configuration and
// classes of their own, which a daemon must not find.
const (
	libFolder   = "lib"
	testsFolder = "tests"
)

// essential names some jars, from all over a version's folder, that it is not
// complete without.
func essential(version string) []string {
	return []string{
		libFolder + "/hadoop-hdfs-" + version + ".jar",
		libFolder + "/hadoop-mapreduce-examples-" + examplesVersion(version) + ".jar",
		libFolder + "/hadoop-yarn-server-timelineservice-" + version + ".jar",
		testsFolder + "/hadoop-mapreduce-client-jobclient-" + version + "-tests.jar",
	}
}

func complete(home, version string) bool {
	for _, jar := range essential(version) {
		if _, err := os.Stat(filepath.Join(home, jar)); err != nil {
			return false
		}
	}
	return true
}

// setTestsApart moves the jars of tests from work/lib to work/tests.
func setTestsApart(work string) error {
	jars, err := filepath.Glob(filepath.Join(work, libFolder, "*-tests.jar"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(work, testsFolder), 0o755); err != nil {
		return err
	}
	for _, jar := range jars {
		if err := os.Rename(jar, filepath.Join(work, testsFolder, filepath.Base(jar))); err != nil {
			return err
		}
	}
	return nil
}

// runMaven copies the runtime dependencies into work/lib and says every five
// seconds how much has been downloaded: descriptions of jars at first, then jars.
func runMaven(ctx context.Context, work, version string, progress func(string, ...any)) error {
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-f", filepath.Join(work, "pom.xml"),
		"-Dhadoop.version="+version, "-Dexamples.version="+examplesVersion(version),
		"dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(work, libFolder))
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
	files, jars, said := 0, 0, time.Now()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, "Downloaded from") {
			files++
			if strings.Contains(line, ".jar") {
				jars++
			}
		}
		if !strings.Contains(line, "Download") {
			if tail = append(tail, line); len(tail) > 20 {
				tail = tail[1:]
			}
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			progress("  %d files downloaded, %d of them jars", files, jars)
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("hadoop: mvn dependency:copy-dependencies: %w; its last lines:\n%s", err, strings.Join(tail, "\n")))
	}
	return nil
}
