package node

import (
	"context"
	"net"
	"sync"
	"time"

	rungroup "github.com/oklog/run"
)

// Run serves until ctx ends or the agents' socket fails. It returns the socket's error. The
// daemon's parts are in a run group:
//
//	agents           the socket server, the loopback port, and the device loops behind them
//	peers' client    connections to other nodes
//	HTTP server      metrics, status, health
//	identity         lookups of processes
//	peers' server    answers other nodes
//	file watcher     reloads weights, checks the kill switch
//	foreign I/O      finds the users of foreign I/O on the devices
//	orchestrators    asks the kubelet and the Mesos agent about containers, if the settings name them
//	device plug-in   offers disk bandwidth to the kubelet, if the settings ask for it
//	connections      follows the connections of DataNodes
//	processes        follows the processes of applications and containers
//	kernel control   holds processes and connections without an agent, if the settings allow it
//	coordination     the stream to the broker
//
// If another part fails, the daemon logs the error and continues to govern. The first four parts
// are stopped one after the other, in this order; the others end when ctx does. The device loops
// end after the agents' connections, so that the last marks still reach the agents, and the status
// is served meanwhile.
func (d *Daemon) Run(ctx context.Context) error {
	listener, err := d.listenForAgents()
	if err != nil {
		return err
	}
	logWarnings(d.log, d.settings.Weights, d.weights)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loopback, err := d.listenLoopback(ctx)
	if err != nil {
		listener.Close()
		d.identity.Close()
		return err
	}
	web, answers, err := d.listenTCP(ctx)
	if err != nil {
		listener.Close()
		loopback.close()
		d.identity.Close()
		return err
	}
	loops := d.acceptDevices()
	d.checkKillSwitch() // before the first agent connects
	d.log.Info("ready", "socket", d.settings.Socket, "mode", d.currentMode().String(), "listen", web.address())

	h := d.newHolding()
	d.mu.Lock()
	d.holding = h
	d.mu.Unlock()
	p := parts{ctx: ctx}
	stopped := make(chan struct{})
	p.group.Add(func() error {
		defer close(stopped)
		err = d.serveAgents(ctx, cancel, listener, loopback, loops)
		return nil
	}, func(error) {
		cancel()
		<-stopped
	})
	if d.asking != nil {
		p.addStopped(func() {}, func() {
			d.storage.close()
			d.asking.Close()
		})
	}
	if web != nil {
		p.addStopped(func() { web.serve(ctx, d.log) }, web.close)
	}
	p.addStopped(func() {}, d.identity.Close)
	if answers != nil {
		p.add(func() { d.answerPeers(ctx, answers) })
	}
	p.add(func() { d.watch(ctx) })
	if d.settings.Foreign == "users" {
		p.add(func() { d.users.follow(ctx, d.deviceNames) })
	}
	if d.orchestrators != nil {
		p.add(func() { d.orchestrators.Run(ctx) })
	}
	if d.devicePlugin != nil {
		p.add(func() { d.devicePlugin.Run(ctx) })
	}
	p.add(func() { d.connections.follow(ctx) })
	p.add(func() { d.processes.follow(ctx) })
	if h != nil {
		p.add(func() { h.follow(ctx) })
	}
	if d.cluster != nil {
		d.cluster.Version = d.Build
		p.add(func() { d.cluster.Run(ctx) })
	}
	_ = p.group.Run() // err was set by the agents' socket, the only part whose failure ends the daemon
	return err
}

// parts runs the daemon's parts in a run group. The group stops all parts when one ends, so a part
// that ends early waits for ctx.
type parts struct {
	group rungroup.Group
	ctx   context.Context
}

// add adds a part that ends when ctx does.
func (p *parts) add(run func()) { p.addStopped(run, func() {}) }

// addStopped adds a part that ends when stop is called. stop is called after ctx has ended and the
// previous parts have been stopped.
func (p *parts) addStopped(run, stop func()) {
	p.group.Add(func() error {
		run()
		<-p.ctx.Done()
		return nil
	}, func(error) { stop() })
}

// listenTCP listens for HTTP requests and for other nodes. A result is nil if the settings disable
// it.
func (d *Daemon) listenTCP(ctx context.Context) (web *webServer, answers *peerPort, err error) {
	if web, err = d.listenHTTP(ctx, d.settings.Listen); err != nil {
		return nil, nil, err
	}
	if answers, err = d.listenForPeers(ctx); err != nil && web != nil {
		web.port.close()
	}
	return web, answers, err
}

// loops are the goroutines of the devices.
type loops struct {
	stop    context.CancelFunc
	running sync.WaitGroup // the loops themselves
}

// acceptDevices lets agents register devices from now on. Each new device gets its loop, and
// goroutines that run applyChanges and follow.
func (d *Daemon) acceptDevices() *loops {
	ctx, stop := context.WithCancel(context.Background())
	l := &loops{stop: stop}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run = func(g *governed) {
		l.running.Go(func() { g.loop.Run(ctx) })
		go g.applyChanges(ctx, d.rules)
		go g.follow(ctx)
	}
	d.ready = true
	return l
}

// serveAgents serves agents until ctx ends or the socket fails. Then it ends ctx, the agents'
// connections and the device loops. It waits for at most stopWait.
func (d *Daemon) serveAgents(ctx context.Context, cancel context.CancelFunc, listener *net.UnixListener, loopback *port, loops *loops) (err error) {
	defer loops.stop()
	served := make(chan error, 1)
	go func() {
		var byLoopback sync.WaitGroup
		byLoopback.Go(func() { d.serveLoopback(ctx, loopback) })
		err := d.server.Serve(ctx, listener)
		cancel()
		byLoopback.Wait()
		served <- err
	}()
	select {
	case err = <-served:
		served <- err
	case <-ctx.Done():
	}
	cancel()
	d.mu.Lock()
	d.ready = false
	d.mu.Unlock()
	d.log.Info("stopping: streams are no longer held back")
	ended := make(chan error, 1)
	go func() {
		err := <-served
		loops.stop()
		loops.running.Wait()
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-time.After(stopWait):
		// The kernel completes the device's outstanding requests. Waiting for them would delay a
		// restart for as long as the device hangs.
		d.log.Error("a device has not answered: stopping without it", "waited", stopWait)
	}
	return err
}
