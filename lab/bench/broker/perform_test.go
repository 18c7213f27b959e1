package broker

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	served "penstock/broker"
	"penstock/wire/cluster"
)

// TestMain also acts as the programs that a bench starts: `penstock broker` and the generators.
func TestMain(m *testing.M) {
	var err error
	switch args := strings.Join(os.Args[1:], " "); {
	case args == "bench broker nodes":
		err = Generate(context.Background(), os.Stdin, os.Stdout)
	case strings.HasPrefix(args, "broker --listen "):
		err = serve(os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a broker with the flags that the bench passes to it.
func serve(args []string) error {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	var files cluster.Files
	var listen, metrics, level string
	var most int
	for name, to := range map[string]*string{"listen": &listen, "metrics": &metrics, "ca": &files.CA, "cert": &files.Cert, "key": &files.Key, "log-level": &level} {
		flags.StringVar(to, name, "", "")
	}
	flags.IntVar(&most, "connections-per-address", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	secure, err := files.Server()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := served.New(ctx, served.Options{})
	if err != nil {
		return err
	}
	nodes, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	pages, err := net.Listen("tcp", metrics)
	if err != nil {
		return err
	}
	nodes, options := b.LimitConnections(nodes, secure, served.Limits{PerAddress: most})
	server := grpc.NewServer(options...)
	cluster.RegisterNodesServer(server, b)
	go b.Run(ctx)
	go b.ServeMetrics(pages, nil)
	context.AfterFunc(ctx, server.Stop)
	fmt.Fprintf(os.Stderr, "level=INFO msg=ready metrics=%s listen=%s secure=true\n", metrics, listen)
	return server.Serve(nodes)
}

// TestPerform checks that the windows and the restart are measured, that parts in the journal are
// not measured again, and that nothing is left.
func TestPerform(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	q := usual
	q.Storms, q.Binary, q.Resume, q.Profile = 1, own, "journal", "profile"
	ctx, cancel := context.WithCancel(t.Context())
	q.Progress = func(format string, args ...any) {
		t.Logf(format, args...)
		if strings.HasPrefix(format, "window") && args[0] == 3 {
			cancel()
		}
	}
	if res, err := Perform(ctx, q); err == nil || len(res.Windows) != 2 {
		t.Fatalf("interrupted in the third window: %d windows, %v", len(res.Windows), err)
	}
	q.Progress = t.Logf
	res, err := Perform(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Windows) != Windows || len(res.Storms) != 1 || res.Peak < 1<<20 {
		t.Errorf("%d windows, %d storms, at most %d bytes", len(res.Windows), len(res.Storms), res.Peak)
	}
	for i, w := range res.Windows {
		if w.Seconds < 0.2 || w.Reports <= 0 || w.Resident <= 0 || w.Delay.Count == 0 {
			t.Errorf("window %d: %+v", i+1, w)
		}
	}
	if s, err := os.Stat("profile"); err != nil || s.Size() == 0 {
		t.Errorf("profile: %v", err)
	}
	q.Binary = "not there"
	if again, err := Perform(t.Context(), q); err != nil || len(again.Windows) != Windows || again.Windows[0] != res.Windows[0] {
		t.Errorf("from the journal: %+v, %v", again, err)
	}
	// The folder of the run that was interrupted is kept for its logs.
	if left, err := filepath.Glob("run/broker-*"); err != nil || len(left) != 1 {
		t.Errorf("folders %v, %v", left, err)
	} else if _, err := os.Stat(filepath.Join(left[0], "ledger.jsonl")); !os.IsNotExist(err) {
		t.Errorf("the run has not put everything back: %v", err)
	}
}
