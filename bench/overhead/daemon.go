package overhead

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"penstock/testbed/ledger"
)

// daemon is a running `penstock node` with the settings that it has when nobody
// sets any.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{}
	book   *ledger.Ledger
	entry  ledger.ID
	log    string
	url    string
}

const (
	daemonPatience = 20 * time.Second
	// settle is two heartbeats: the agent has the mode and has slept since.
	settle = 500 * time.Millisecond
)

// startDaemon returns when the agent is connected.
func startDaemon(ctx context.Context, book *ledger.Ledger, binary, dir, socket, mode string) (_ *daemon, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close() // should somebody else get it first, the daemon says so
	d := &daemon{book: book, exited: make(chan struct{}), log: filepath.Join(dir, "node.log"), url: "http://" + address}
	settings := filepath.Join(dir, "node.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "socket: %s\nlisten: %s\nmode: %s\n", socket, address, mode), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(binary, "node", "--config", settings)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.entry, err = book.StartProcess(d.cmd); err != nil {
		return nil, fmt.Errorf("start penstock node: %w", err)
	}
	go func() {
		d.cmd.Wait()
		close(d.exited)
	}()
	if err := d.await(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// await returns when an agent is connected and has heard the mode.
func (d *daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := d.agents(ctx)
		if err == nil && n > 0 {
			break
		}
		select {
		case <-tick.C:
		case <-d.exited:
			return fmt.Errorf("penstock node ended: %s", d.tail())
		case <-ctx.Done():
			return fmt.Errorf("no agent is connected to penstock node: %w: %s", errors.Join(err, ctx.Err()), d.tail())
		}
	}
	select {
	case <-time.After(settle):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// agents is how many are connected.
func (d *daemon) agents(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "penstock_agent_connections "); ok {
			var n int
			_, err := fmt.Sscan(value, &n)
			return n, err
		}
	}
	return 0, errors.Join(errors.New("the daemon's metrics lack penstock_agent_connections"), lines.Err())
}

func (d *daemon) tail() string {
	b, _ := os.ReadFile(d.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return d.log + " ends with\n" + strings.Join(lines[max(0, len(lines)-10):], "\n")
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// stop ends the daemon. One that died before is an error: what it governed was
// not governed to its end.
func (d *daemon) stop() error {
	var err error
	select {
	case <-d.exited:
		err = fmt.Errorf("penstock node had ended by itself: %s", d.tail())
	default:
		d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.exited:
		case <-time.After(daemonPatience):
			d.cmd.Process.Kill()
			<-d.exited
			err = fmt.Errorf("penstock node did not end within %v of SIGTERM: %s", daemonPatience, d.tail())
		}
	}
	return errors.Join(err, d.book.Undo(d.entry))
}
