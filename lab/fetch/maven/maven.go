// Package maven fetches the jars of a real program into the project's cache, once: those that a pom.xml
// names, with their dependencies. Maven takes its repositories and mirrors from the user's own settings.
package maven

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Program is what is fetched.
type Program struct {
	Name       string   // with its version, in messages
	Size       string   // how much it is, in messages
	Home       string   // the folder that it is to have, an absolute path
	Jars       string   // the folder in Home for the jars; empty: Home itself
	POM        []byte   // its runtime dependencies are copied
	Properties []string // that the POM needs: name=value
	// Arrange moves what has to lie elsewhere in the folder that becomes Home; nil: nothing.
	Arrange func(home string) error
	// Complete reports whether a folder has all of the program; nil: one that is there has.
	Complete func(home string) bool
}

const (
	tailLines = 20 // of Maven's output, for an error
	says      = 5 * time.Second
)

// Fetch makes sure that a program is in its folder. Later calls are instant. Two processes
// may fetch at once: the folder appears whole, by a rename.
func Fetch(ctx context.Context, p Program, progress func(format string, args ...any)) error {
	if progress == nil {
		progress = func(string, ...any) {}
	}
	if _, err := os.Stat(p.Home); err == nil {
		return p.check(p.Home)
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("%s is fetched by Maven (mvn) the first time, which is not installed: %w", p.Name, err)
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
		if _, there := os.Stat(p.Home); there != nil { // else another process was first, which is as good
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
	return fmt.Errorf("%s is not complete in %s: delete that, to fetch it again", p.Name, home)
}

// run copies the jars into a folder and says every five seconds how much has been
// downloaded: descriptions of jars at first, then jars.
func (p Program) run(ctx context.Context, work, into string, progress func(string, ...any)) error {
	args := []string{"-B", "-f", filepath.Join(work, "pom.xml")}
	for _, property := range p.Properties {
		args = append(args, "-D"+property)
	}
	cmd := exec.CommandContext(ctx, "mvn", append(args, "dependency:copy-dependencies", "-DoutputDirectory="+into)...)
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
		return errors.Join(ctx.Err(), fmt.Errorf("mvn dependency:copy-dependencies: %w; its last lines:\n%s", err, strings.Join(tail, "\n")))
	}
	return nil
}
