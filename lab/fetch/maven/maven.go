// Package maven fetches the jars of a real program into the project's cache, once. A pom.xml names
// the jars, and Maven adds their dependencies. Maven takes its repositories and mirrors from the
// user's own settings.
package maven

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is a program to fetch.
type Program struct {
	Name       string   // name and version, for messages
	Size       string   // size of the download, for messages
	Home       string   // absolute path of the program's folder
	Jars       string   // the folder in Home for the jars; empty: Home itself
	POM        []byte   // its runtime dependencies are copied, unless there are Goals
	Goals      []string // of Maven, which write to the folder ${outputDirectory}
	Properties []string // properties that the POM needs: name=value
	// Arrange moves files within the folder that becomes Home; nil: no files are moved.
	Arrange func(home string) error
	// Complete reports whether a folder contains the complete program; nil: every folder that
	// exists is complete.
	Complete func(home string) bool
}

const (
	tailLines = 20 // lines of Maven's output in an error
	says      = 5 * time.Second
)

// Fetch makes sure that a program is in its folder. If it is, Fetch returns at once. Two processes
// may fetch at the same time: the folder appears as a whole, by a rename.
func Fetch(ctx context.Context, p Program, progress func(format string, args ...any)) error {
	if progress == nil {
		progress = func(string, ...any) {}
	}
	if _, err := os.Stat(p.Home); err == nil {
		return p.check(p.Home)
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("fetching %s needs Maven (mvn), which is not installed: %w", p.Name, err)
	}
	cache := filepath.Dir(p.Home)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), p.POM, 0o644); err != nil {
		return err
	}
	progress("%s: fetching %s with Maven into %s, once", p.Name, p.Size, p.Home)
	begin := time.Now()
	made := filepath.Join(work, "home")
	if err := p.run(ctx, work, filepath.Join(made, p.Jars), progress); err != nil {
		return err
	}
	if p.Arrange != nil {
		if err := p.Arrange(made); err != nil {
			return err
		}
	}
	if err := p.check(made); err != nil {
		return err
	}
	if err := os.Rename(made, p.Home); err != nil {
		if _, there := os.Stat(p.Home); there != nil { // otherwise another process was faster, and its folder is as good
			return err
		}
	}
	progress("%s: fetched in %.0f s", p.Name, time.Since(begin).Seconds())
	return p.check(p.Home)
}

func (p Program) check(home string) error {
	if p.Complete == nil || p.Complete(home) {
		return nil
	}
	return fmt.Errorf("%s is not complete in %s: delete the folder to fetch it again", p.Name, home)
}

// run writes the jars into a folder. Every five seconds it reports the number of downloaded files:
// first the jars' descriptions, then the jars.
func (p Program) run(ctx context.Context, work, into string, progress func(string, ...any)) error {
	args := []string{"-B", "-f", filepath.Join(work, "pom.xml")}
	for _, property := range p.Properties {
		args = append(args, "-D"+property)
	}
	goals := p.Goals
	if goals == nil {
		goals = []string{"dependency:copy-dependencies"}
	}
	cmd := exec.CommandContext(ctx, "mvn", slices.Concat(args, goals, []string{"-DoutputDirectory=" + into})...)
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
			if tail = append(tail, line); len(tail) > tailLines {
				tail = tail[1:]
			}
		}
		if time.Since(said) > says {
			said = time.Now()
			progress("  %d files downloaded, %d of them jars", files, jars)
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("mvn %s: %w; its last lines:\n%s", strings.Join(goals, " "), err, strings.Join(tail, "\n")))
	}
	return nil
}
