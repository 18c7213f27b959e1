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

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/stand"
)

// terminal is a real terminal without a user.
type terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	fixture.Must(t, err)
	t.Cleanup(func() { master.Close() })
	fixture.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	fixture.Must(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	fixture.Must(t, err)
	t.Cleanup(func() { slave.Close() })
	fixture.Must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 140}))
	term := &terminal{master: master, slave: slave}
	go io.Copy(term, master)
	return term
}

// Write records the terminal's output.
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
	fixture.Must(t, err)
	return *set
}

// However top ends, the terminal is restored. The same holds for the view of the cluster, and for a
// view whose broker has ended meanwhile.
func TestTopPutsTheTerminalBack(t *testing.T) {
	types := func(keys string) func(*terminal, *os.Process) error {
		return func(term *terminal, _ *os.Process) error {
			_, err := term.master.WriteString(keys)
			return err
		}
	}
	sends := func(s syscall.Signal) func(*terminal, *os.Process) error {
		return func(_ *terminal, p *os.Process) error { return p.Signal(s) }
	}
	node := []string{"--address", shared.Nodes[0].Address}
	broker := shared.StartDaemon(t, daemon.Options{Base: "top", Broker: []string{"--listen", "127.0.0.1:0", "--metrics", "off", "--name", "tools"}})
	whole := []string{"--cluster", "--interval", "100ms", "--broker", broker.Address}
	for _, c := range []struct {
		name, shows string
		args        []string
		end         func(term *terminal, p *os.Process) error
		code        int
	}{
		{"q", "mode enforce", node, types("q"), 0},
		{"Ctrl-C", "mode enforce", node, types("\x03"), 0},
		{"SIGINT", "mode enforce", node, sends(syscall.SIGINT), 130},
		{"SIGTERM", "mode enforce", node, sends(syscall.SIGTERM), 130},
		{"SIGHUP", "mode enforce", node, sends(syscall.SIGHUP), 130},
		{"cluster, q", "broker tools", whole, types("q"), 0},
		{"cluster, Ctrl-C", "no policy", whole, types("\x03"), 0},
		{"cluster, SIGTERM", "no policy", whole, sends(syscall.SIGTERM), 130},
		{"cluster, its broker is killed", "broker tools", whole, func(term *terminal, p *os.Process) error {
			fixture.Must(t, broker.Kill())
			fixture.Eventually(t, "it says so", func() bool { return term.shows("no broker answers") })
			return types("q")(term, p)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			term := openTerminal(t)
			before := term.settings(t)
			cmd := exec.CommandContext(t.Context(), shared.Spec.Binary, append([]string{"top"}, c.args...)...)
			cmd.Env = append(os.Environ(), "TERM=xterm-256color")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			fixture.Must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			fixture.Eventually(t, "the view is drawn", func() bool { return term.shows("q quit") && term.shows(c.shows) })
			if term.settings(t) == before {
				t.Error("the terminal is not in raw mode while top runs")
			}
			fixture.Must(t, c.end(term, cmd.Process))
			select {
			case err := <-ended:
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
			case <-time.After(stand.Patience):
				cmd.Process.Kill()
				t.Fatal("top does not end")
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if after := term.settings(t); after != before {
				t.Errorf("the terminal's settings are left changed: %+v, were %+v", after, before)
			}
			fixture.Eventually(t, "the usual screen and the cursor are back", func() bool { return term.shows("\x1b[?1049l") && term.shows("\x1b[?25h") })
		})
	}
}
