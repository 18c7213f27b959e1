package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a real one, without anybody before it.
type terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 140}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, slave: slave}
	go io.Copy(term, master)
	return term
}

// Write keeps what is shown.
func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.Write(p)
}

func (s *terminal) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.shown.Bytes(), []byte(text))
}

func (s *terminal) settings(t *testing.T) unix.Termios {
	t.Helper()
	set, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *set
}

// However top ends, the terminal is as it was.
func TestTopPutsTheTerminalBack(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(term *terminal, p *os.Process) error
		code int
	}{
		"q":       {func(term *terminal, _ *os.Process) error { _, err := term.master.WriteString("q"); return err }, 0},
		"Ctrl-C":  {func(term *terminal, _ *os.Process) error { _, err := term.master.WriteString("\x03"); return err }, 0},
		"SIGINT":  {func(_ *terminal, p *os.Process) error { return p.Signal(syscall.SIGINT) }, 130},
		"SIGTERM": {func(_ *terminal, p *os.Process) error { return p.Signal(syscall.SIGTERM) }, 130},
		"SIGHUP":  {func(_ *terminal, p *os.Process) error { return p.Signal(syscall.SIGHUP) }, 130},
	} {
		t.Run(name, func(t *testing.T) {
			term := openTerminal(t)
			before := term.settings(t)
			cmd := exec.CommandContext(t.Context(), bed.binary, "top", "--address", bed.daemon.Address)
			cmd.Env = append(os.Environ(), "TERM=xterm-256color")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			eventually(t, "the view is drawn", func() bool { return term.shows("q quit") && term.shows("mode enforce") })
			if term.settings(t) == before {
				t.Error("the terminal is not in raw mode while top runs")
			}
			if err := c.end(term, cmd.Process); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
			case <-time.After(patience):
				cmd.Process.Kill()
				t.Fatal("top does not end")
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if after := term.settings(t); after != before {
				t.Errorf("the terminal's settings are left changed: %+v, were %+v", after, before)
			}
			eventually(t, "the usual screen and the cursor are back", func() bool { return term.shows("\x1b[?1049l") && term.shows("\x1b[?25h") })
		})
	}
}
