package node

import (
	"context"
	"log/slog"
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
// are stopped one after the other, in this order; the others end when ctx does. Run returns at most endWait after the end of ctx. The device loops
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
	p := newParts(ctx, d.log, endWait)
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
		p.addStopped("peers' client", func() {}, func() {
			d.storage.close()
			d.asking.Close()
		})
	}
	if web != nil {
		p.addStopped("HTTP server", func() { web.serve(ctx, d.log) }, web.close)
	}
	p.addStopped("identity", func() {}, d.identity.Close)
	if answers != nil {
		p.add("peers' server", func() { d.answerPeers(ctx, answers) })
	}
	p.add("file watcher", func() { d.watch(ctx) })
	if d.settings.Foreign == "users" {
		p.add("foreign I/O", func() { d.users.follow(ctx, d.deviceNames) })
	}
	if d.orchestrators != nil {
		p.add("orchestrators", func() { d.orchestrators.Run(ctx) })
	}
	if d.devicePlugin != nil {
		p.add("device plug-in", func() { d.devicePlugin.Run(ctx) })
	}
	p.add("connections", func() { d.connections.follow(ctx) })
	p.add("processes", func() { d.processes.follow(ctx) })
	if h != nil {
		p.add("kernel control", func() { h.follow(ctx) })
	}
	if d.cluster != nil {
		d.cluster.Version = d.Build
		p.add("coordination", func() { d.cluster.Run(ctx) })
	}
	_ = p.group.Run() // err was set by the agents' socket, the only part whose failure ends the daemon
	return err
}

// endWait is the longest time from the end of ctx to the end of Run. A part may wait for a disk or a process that hangs;
// the daemon ends without it. systemd kills the daemon after 10 s.
const endWait = 8 * time.Second

// parts runs the daemon's parts in a run group. The group stops all parts when one ends, so a part
// that ends early waits for ctx. A part that does not end in time is left behind.
type parts struct {
	group rungroup.Group
	ctx   context.Context
	log   *slog.Logger
	late  <-chan struct{} // closed when the parts should have ended
}

func newParts(ctx context.Context, log *slog.Logger, wait time.Duration) *parts {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(wait, func() { close(late) }) })
	return &parts{ctx: ctx, log: log, late: late}
}

// add adds a part that ends when ctx does.
func (p *parts) add(name string, run func()) { p.addStopped(name, run, func() {}) }

// addStopped adds a part that ends when stop is called. stop is called after ctx has ended and the
// previous parts have been stopped.
func (p *parts) addStopped(name string, run, stop func()) {
	p.group.Add(func() error {
		ended := begun(run)
		<-p.ctx.Done()
		p.await(name, ended)
		return nil
	}, func(error) { p.await(name, begun(stop)) })
}

// begun runs f in a goroutine. The channel is closed when f has ended.
func begun(f func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func (p *parts) await(name string, ended <-chan struct{}) {
	select {
	case <-ended:
	case <-p.late:
		p.log.Error("a part of the daemon has not ended in time: ending without it", "part", name)
	}
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
		ctx, stop := context.WithCancel(ctx)
		g.stop = stop
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
