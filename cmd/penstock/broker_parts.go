package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	rungroup "github.com/oklog/run"

	"penstock/broker"
	"penstock/wire/cluster"
	"penstock/wire/web"
)

// parts runs the parts of a broker side by side. When the server fails, or the context ends, all
// are stopped.
type parts struct {
	group rungroup.Group
	ctx   context.Context
}

func newParts(ctx context.Context) *parts {
	p := &parts{ctx: ctx}
	p.add(func(ctx context.Context) { <-ctx.Done() })
	return p
}

// add adds a part that runs until its context ends. A part that ends earlier stops no other part.
func (p *parts) add(run func(context.Context)) {
	ctx, cancel := context.WithCancel(p.ctx)
	p.group.Add(func() error {
		run(ctx)
		<-ctx.Done()
		return nil
	}, func(error) { cancel() })
}

// addMetrics adds the server of /metrics. If the server fails, the broker continues without it.
func (p *parts) addMetrics(b *broker.Broker, l net.Listener, token *web.Token, log *slog.Logger) {
	ctx, cancel := context.WithCancel(p.ctx)
	p.group.Add(func() error {
		if err := b.ServeMetrics(l, token); err != nil && ctx.Err() == nil {
			log.Error("the metrics server failed; the broker continues without it", "error", err)
		}
		<-ctx.Done()
		return nil
	}, func(error) {
		cancel()
		l.Close()
	})
}

// addServer adds the server for nodes and operators. Stopping it closes all streams; nodes then
// connect again.
func (p *parts) addServer(b *broker.Broker, listener net.Listener, secure *tls.Config, most broker.Limits) {
	listener, options := b.LimitConnections(listener, secure, most)
	server := grpc.NewServer(options...)
	cluster.RegisterNodesServer(server, b)
	cluster.RegisterOperatorsServer(server, b.Operators())
	p.group.Add(func() error {
		if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}, func(error) { server.Stop() })
}

// run returns when all parts have ended. It returns the error of the part that ended first.
func (p *parts) run() error { return p.group.Run() }
