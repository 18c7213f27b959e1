package node

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/node/loglimit"
	"penstock/wire/web"
)

// webServer serves metrics, status and health; it takes no commands.
type webServer struct {
	server *http.Server
	port   *port
}

// maxWebConnections is the maximum number of connections of the status port; each needs a
// descriptor.
const maxWebConnections = 128

// listenHTTP listens at an address. It returns nil for "off".
func (d *Daemon) listenHTTP(ctx context.Context, address string) (*webServer, error) {
	if address == "off" {
		return nil, nil
	}
	port, err := d.listenOn(ctx, "status", address)
	if err != nil {
		return nil, fmt.Errorf("%w (set listen in the settings, \"off\" for none)", err)
	}
	var token *web.Token
	if d.settings.ListenToken != "" {
		if token, err = web.OpenToken(d.settings.ListenToken); err != nil {
			port.close()
			return nil, fmt.Errorf("listen_token: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", token.Authorized(web.Few(promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))))
	mux.Handle("GET /status", token.Authorized(web.Few(http.HandlerFunc(d.serveStatus))))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		if stalled := d.stalled(); len(stalled) > 0 {
			http.Error(w, "stalled loops: "+strings.Join(stalled, " "), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "healthy")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		d.mu.Lock()
		ready := d.ready
		d.mu.Unlock()
		if !ready {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return &webServer{port: port, server: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(said{d.limited}, "", 0),
	}}, nil
}

// serve answers requests until the server is closed.
func (w *webServer) serve(ctx context.Context, log *slog.Logger) {
	w.port.serve(ctx, func(l net.Listener) {
		if err := w.server.Serve(web.Bounded(l, maxWebConnections)); err != nil && err != http.ErrServerClosed {
			log.Error("http", "error", err)
		}
	})
}

// said logs messages of the HTTP server about its clients, with a limited rate.
type said struct{ limited *loglimit.Limiter }

func (s said) Write(line []byte) (int, error) {
	s.limited.Once(slog.LevelWarn, "status port", "", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (w *webServer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		w.server.Close()
	}
}

func (w *webServer) address() string {
	switch {
	case w == nil:
		return "off"
	case w.port.bound() == "":
		return "later"
	}
	return w.port.bound()
}
