package node

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/core/reserve"
	"penstock/node/identity"
	"penstock/node/ipc"
)

// metrics turns the loops' snapshots into Prometheus metrics at each scrape.
type metrics struct {
	daemon   *Daemon
	registry *prometheus.Registry
	latency  *prometheus.HistogramVec

	collecting sync.Mutex
	owners     *ownerMetrics // protected by collecting
	flows      *flowSeries   // protected by collecting; nil: flows have no series
}

var (
	modeDesc                = desc("mode", "Mode in force: 0 off, 1 observe, 2 enforce.")
	stalledDesc             = desc("heartbeat_stalled_devices", "Devices whose loop does not respond: heartbeats leave them out, and their streams pass.")
	inForceDesc             = desc("cluster_in_force", "1 while the cluster's totals determine the shares of this node, 0 while only its own service does.")
	connectionsDesc         = desc("agent_connections", "Agents connected now.")
	refusedDesc             = desc("agent_connections_refused_total", "Connections refused by the peer check or a bound.")
	hurriedDesc             = desc("agent_connections_hurried_total", "Connections refused because their user or container connects too often; part of the refused connections.")
	loopbackDesc            = desc("agent_loopback_connections", "Agents connected by the loopback port, which JVMs without Unix sockets use; part of the connected agents.")
	loopbackRefusedDesc     = desc("agent_loopback_refused_total", "Connections to the loopback port refused because the peer's socket or process was not found; part of the refused connections.", "reason")
	displacedDesc           = desc("agent_connections_displaced_total", "Agents disconnected to make room for another user's or container's.")
	acceptFailsDesc         = desc("agent_accept_failures_total", "Connections that could not be accepted, for example because descriptors ran out.")
	filesDesc               = desc("agent_files", "Descriptors of files and directories that are open for agents: server or task.", "role")
	filesBoundDesc          = desc("agent_files_bound", "Limit of penstock_agent_files.", "role")
	suppressedDesc          = desc("log_lines_suppressed_total", "Lines about agents that were not written to the log, because the same message was logged before.")
	badFramesDesc           = desc("agent_bad_frames_total", "Frames refused; each ends its connection.")
	openErrorsDesc          = desc("agent_open_errors_total", "Streams that passed ungoverned, because their file could not be opened or a limit was reached.")
	overBoundDesc           = desc("agent_over_bound_total", "Streams that passed ungoverned because a limit on streams or open files was reached; part of the open errors.")
	otherFlowsDesc          = desc("agent_other_flows_total", "Streams of tasks that named another application's flow; they were refused and passed ungoverned.")
	goneFilesDesc           = desc("agent_gone_files_total", "Files of tasks that were deleted before they could be opened.")
	slowPeersDesc           = desc("agent_slow_peers_total", "Agents disconnected because they did not read.")
	claimsDesc              = desc("identity_claims_total", "Claims to a flow, by outcome and evidence.", "outcome", "evidence")
	hitsDesc                = desc("identity_cache_hits_total", "Claims answered from the cache.")
	overflowsDesc           = desc("identity_overflows_total", "Claims left unknown because a limit was reached.")
	lookupsDesc             = desc("identity_lookups_total", "Lookups of the process behind a connection.")
	slowLookupsDesc         = desc("identity_slow_lookups_total", "Lookups that took too long and were given up.")
	remoteDesc              = desc("identity_remote_total", "Questions to other nodes about their processes, by the outcome for the claim: confirmed, refuted, undecided, unanswered.", "outcome")
	answersDesc             = desc("identity_answers_total", "Other nodes' questions about processes here: answered or refused.", "outcome")
	lookupTimeDesc          = desc("identity_lookup_seconds_total", "Time spent in lookups.")
	orchestratedDesc        = desc("orchestrator_containers", "Containers in the last answer of the kubelet or the Mesos agent.", "kind")
	orchestratorFailsDesc   = desc("orchestrator_failures", "Requests to the kubelet or the Mesos agent that have failed since its last answer.", "kind")
	dataNodeConnectionsDesc = desc("datanode_connections", "Established connections to the DataNodes of this machine.")
	turnsDesc               = desc("turns_total", "Turns that tasks have taken at this machine's storage server: taken. Of these, late: passed because the device did not answer in time; overdue: lost their place at the device before their end.", "outcome")
	turnBytesDesc           = desc("turn_bytes_total", "Bytes for which tasks have taken turns at this machine's storage server.")
	turnsAwayDesc           = desc("turns_away_total", "Turns of tasks on this machine for which another node was asked: forwarded. Of these, refused: that node does not govern them; unanswered: they passed because that node did not answer.", "outcome")
	reloadsDesc             = desc("weights_reloads_total", "Weights files read.", "result")

	depthDesc       = desc("device_depth", "Depth D: requests that may be in flight.", "device")
	outstandingDesc = desc("device_outstanding", "Requests in flight.", "device")
	dirtyDesc       = desc("device_backlog_bytes", "Bytes written that the device does not have yet, all flows.", "device")
	stagedDesc      = desc("device_staged_bytes", "Bytes in the page cache, or on their way there, that their readers have not reached yet.", "device")
	stuckDesc       = desc("device_stuck", "1 while the device has not answered a request in time; its streams then pass.", "device")
	silentDesc      = desc("device_silent", "1 while the device's loop does not answer; its other metrics are then missing.", "device")
	foreignDesc     = desc("device_foreign_bytes_total", "Bytes that the device moved outside of the governed flows; a lower bound.", "device", "direction")
	busyDesc        = desc("device_busy_seconds_total", "Time in which the device had work, as counted by the kernel.", "device")
	inFlightDesc    = desc("device_kernel_in_flight", "Requests of all processes that the kernel has at the device.", "device")
	freeDesc        = desc("device_free", "1 while only one application uses the device: its small reads do not wait for their marks.", "device")
	passingDesc     = desc("passing_reads_total", "Small reads that did not wait for their marks, because the device was free.", "device")
	slowDesc        = desc("device_slowdown", "Factor by which the device is slower than when it was healthy; 1 while it is healthy.", "device")
	scaleDesc       = desc("device_cost_scale", "Factor between the costs in the device's profile and the device's present times.", "device", "direction")
	errorsDesc      = desc("device_errors_total", "Requests and decisions that failed.", "device")
	latencyDesc     = desc("device_latency_seconds", "Mean latency of the last control period's requests.", "device")
	referenceDesc   = desc("device_latency_reference_seconds", "Mean reference latency of the same requests.", "device")
	periodsDesc     = desc("device_depth_periods_total", "Control periods with requests, by the resulting depth (min, max or between).", "device", "at")

	strictIdleDesc = desc("device_strict_idle_seconds_total", "Time for which the device had no request because of strict rates, while a flow was backlogged.", "device")
	promisedDesc   = desc("device_promised_ratio", "Part of the device's time that all guaranteed rates of its flows take at its present speed, each quantum at a random place, whether they are admitted or not.", "device")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

func newMetrics(d *Daemon) *metrics {
	m := &metrics{
		daemon:   d,
		registry: prometheus.NewRegistry(),
		owners:   newOwnerMetrics(),
		flows:    newFlowSeries(d.settings.FlowMetrics),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "penstock_request_latency_seconds",
			Help:    "Latency of device requests.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 1.6, 24),
		}, []string{"device", "direction"}),
	}
	m.registry.MustRegister(m, m.latency, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) latencyOf(name string) func(write bool, latency time.Duration) {
	read, write := m.latency.WithLabelValues(name, "read"), m.latency.WithLabelValues(name, "write")
	return func(w bool, latency time.Duration) {
		if w {
			write.Observe(latency.Seconds())
		} else {
			read.Observe(latency.Seconds())
		}
	}
}

// Describe sends nothing: the set of flows is not known in advance.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	d := m.daemon
	d.mu.Lock()
	mode, reloads, refused := d.mode, d.reloads, d.refused
	d.mu.Unlock()
	stats := &d.server.Stats
	gauge(modeDesc, float64(mode))
	gauge(stalledDesc, float64(len(d.stalled())))
	if d.cluster != nil {
		inForce := 0.0
		if d.cluster.State().InForce {
			inForce = 1
		}
		gauge(inForceDesc, inForce)
	}
	gauge(dataNodeConnectionsDesc, float64(d.connections.Snapshot(0).Established))
	m.collecting.Lock()
	m.owners.collect(d, out)
	m.collecting.Unlock()
	for _, s := range d.orchestrators.States() {
		gauge(orchestratedDesc, float64(s.Containers), string(s.Kind))
		gauge(orchestratorFailsDesc, float64(s.Failures), string(s.Kind))
	}
	gauge(connectionsDesc, float64(stats.Connections.Load()))
	count(refusedDesc, float64(stats.Refused.Load()))
	count(hurriedDesc, float64(stats.Hurried.Load()))
	loopback := d.loopbackStatus()
	gauge(loopbackDesc, float64(loopback.Agents))
	count(loopbackRefusedDesc, float64(loopback.NoSocket), "socket")
	count(loopbackRefusedDesc, float64(loopback.NoProcess), "process")
	count(displacedDesc, float64(stats.Displaced.Load()))
	count(acceptFailsDesc, float64(stats.AcceptFails.Load()))
	for role, files := range map[string]*ipc.Quota{"server": &d.serverFiles, "task": &d.taskFiles} {
		gauge(filesDesc, float64(files.Held()), role)
		gauge(filesBoundDesc, float64(files.Bound), role)
	}
	count(suppressedDesc, float64(d.limited.Suppressed.Load()))
	count(badFramesDesc, float64(stats.BadFrames.Load()))
	count(openErrorsDesc, float64(stats.OpenErrors.Load()))
	count(overBoundDesc, float64(stats.OverBound.Load()))
	count(otherFlowsDesc, float64(stats.OtherFlows.Load()))
	count(goneFilesDesc, float64(stats.GoneFiles.Load()))
	count(slowPeersDesc, float64(stats.SlowPeers.Load()))
	checks := &d.identity.Stats
	checks.Verdicts(func(state identity.State, evidence identity.Evidence, claims int64) {
		count(claimsDesc, float64(claims), state.String(), evidence.String())
	})
	count(hitsDesc, float64(checks.Hits.Load()))
	count(overflowsDesc, float64(checks.Overflows.Load()))
	count(lookupsDesc, float64(checks.Lookups.Load()))
	count(slowLookupsDesc, float64(checks.Slow.Load()))
	count(lookupTimeDesc, float64(checks.Nanoseconds.Load())/1e9)
	remote := d.remoteStatus()
	for outcome, n := range map[string]int64{"confirmed": remote.Confirmed, "refuted": remote.Refuted, "undecided": remote.Undecided, "unanswered": remote.Unanswered} {
		count(remoteDesc, float64(n), outcome)
	}
	count(answersDesc, float64(remote.Answered), "answered")
	count(answersDesc, float64(remote.Refused), "refused")
	if s := d.storage; s != nil {
		count(turnsDesc, float64(s.stats.Taken.Load()), "taken")
		count(turnsDesc, float64(s.stats.Late.Load()), "late")
		count(turnsDesc, float64(s.stats.Overdue.Load()), "overdue")
		count(turnBytesDesc, float64(s.stats.Bytes.Load()))
		if s.away != nil {
			count(turnsAwayDesc, float64(s.away.Stats.Forwarded.Load()), "forwarded")
			count(turnsAwayDesc, float64(s.away.Stats.Refused.Load()), "refused")
			count(turnsAwayDesc, float64(s.away.Stats.Unanswered.Load()), "unanswered")
		}
	}
	count(reloadsDesc, float64(reloads), "taken")
	count(reloadsDesc, float64(refused), "refused")
	for _, r := range d.readAll() {
		dev := r.dev.Name
		silent := 1.0
		if r.answered {
			silent = 0
		}
		gauge(silentDesc, silent, dev)
		r.mu.Lock()
		foreignBytes := r.history.foreignBytes
		r.mu.Unlock()
		if r.counted {
			count(foreignDesc, float64(foreignBytes[0]), dev, "read")
			count(foreignDesc, float64(foreignBytes[1]), dev, "write")
			count(busyDesc, r.counters.Busy.Seconds(), dev)
			gauge(inFlightDesc, float64(r.counters.InFlight), dev)
		}
		if !r.answered {
			continue
		}
		snap := r.snap
		gauge(depthDesc, float64(snap.Depth), dev)
		gauge(outstandingDesc, float64(snap.Outstanding), dev)
		gauge(dirtyDesc, float64(snap.Backlog), dev)
		gauge(stagedDesc, float64(snap.Staged), dev)
		stuck := 0.0
		if snap.Stuck {
			stuck = 1
		}
		gauge(stuckDesc, stuck, dev)
		free := 0.0
		if snap.Free {
			free = 1
		}
		gauge(freeDesc, free, dev)
		count(passingDesc, float64(snap.Passed), dev)
		gauge(slowDesc, snap.Slow.Factor, dev)
		gauge(scaleDesc, snap.Scale[0], dev, "read")
		gauge(scaleDesc, snap.Scale[1], dev, "write")
		count(errorsDesc, float64(snap.Errors), dev)
		if c := snap.Control; c != nil {
			gauge(latencyDesc, c.Latency.Seconds(), dev)
			gauge(referenceDesc, c.Reference.Seconds(), dev)
			count(periodsDesc, float64(c.AtMin), dev, "min")
			count(periodsDesc, float64(c.AtMax), dev, "max")
			count(periodsDesc, float64(c.Periods-c.AtMin-c.AtMax), dev, "between")
		}
		promised := 0.0
		for _, f := range snap.Flows {
			if f.Reserve.Rate != (reserve.Rate{}) {
				promised += f.Reserve.Promised
			}
		}
		m.collecting.Lock()
		m.flows.collect(dev, snap.Flows, time.Now(), out)
		m.collecting.Unlock()
		gauge(promisedDesc, promised, dev)
		count(strictIdleDesc, snap.StrictIdle.Seconds(), dev)
	}
}
