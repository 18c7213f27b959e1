package broker

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/wire/web"
)

// metrics are the broker's own metrics. Label values are fixed strings of the program, or the names of a bounded number
// of applications (application_metrics.go).
type metrics struct {
	registry       *prometheus.Registry
	reports        prometheus.Counter
	throttled      prometheus.Counter
	streamsRefused *prometheus.CounterVec // by reason
	connsRefused   *prometheus.CounterVec // by reason
	reportSeconds  prometheus.Histogram
	rightsSeconds  prometheus.Histogram
}

// cpuClasses selects the runtime's metrics of CPU time, including garbage collection.
var cpuClasses = regexp.MustCompile(`^/cpu/classes/(gc/total|total|idle):`)

var (
	nodesDesc        = desc("broker_nodes", "Nodes whose reports are in the totals.")
	applicationsDesc = desc("broker_applications", "Applications that at least one node serves.")
	leadingDesc      = desc("broker_leading", "1 while this broker leads and answers nodes.")
	policyDesc       = desc("broker_policy_version", "Version of the policy in force.")
	killSwitchDesc   = desc("broker_kill_switch", "1 while the cluster's kill switch is on.")
	canaryDesc       = desc("broker_canary_percent", "Part of the nodes, in percent, that the canary in force asks for; 0: no canary.")
	orderedDesc      = desc("broker_ordered_applications", "Applications at work in queues with \"order: shortest\".")
	remainingDesc    = desc("broker_remaining_bytes", "Estimated bytes that remain for the applications in ordered queues.")
	firstSliceDesc   = desc("broker_first_slice", "Largest part, 0 to 1, of an ordered queue's share that one application has; 0: none is ordered.")
	deadlinesDesc    = desc("broker_deadlines", "Applications at work with a deadline, by what is decided about it.", "state")
	spreadDesc       = desc("broker_slowdown_spread", "In the queue with \"goal: equal-slowdown\" in which it is largest: the largest estimated slowdown of an application that waits for disks divided by the smallest one, each times its goal; 0: no application is in such a queue.")
	movedDesc        = desc("broker_slowdown_applications", "Applications at work in queues with \"goal: equal-slowdown\".")
	connectionsDesc  = desc("broker_connections", "Open connections, including those not authenticated yet.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

func newMetrics(b *Broker) *metrics {
	m := &metrics{
		registry:       prometheus.NewRegistry(),
		reports:        prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_broker_reports_total", Help: "Reports answered."}),
		throttled:      prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_broker_reports_slowed_total", Help: "Reports delayed because their nodes exceeded the report rate."}),
		streamsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_broker_streams_refused_total", Help: "Streams refused or ended because of an error of the node."}, []string{"reason"}),
		connsRefused:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_broker_connections_refused_total", Help: "Connections closed because of a limit."}, []string{"reason"}),
		reportSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_broker_report_seconds", Help: "Time from the arrival of a report to its answer.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12)}),
		rightsSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_broker_settle_seconds", Help: "Time to compute the rights of all applications at work; reports wait meanwhile.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10)}),
	}
	m.registry.MustRegister(collector{b}, m.reports, m.throttled, m.streamsRefused, m.connsRefused, m.reportSeconds, m.rightsSeconds,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: cpuClasses})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// collector reads the broker's state at each scrape.
type collector struct{ b *Broker }

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodesDesc, applicationsDesc, policyDesc, killSwitchDesc, canaryDesc, connectionsDesc, orderedDesc, remainingDesc, firstSliceDesc, deadlinesDesc, spreadDesc, movedDesc, leadingDesc} {
		out <- d
	}
	for _, d := range appDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	c.b.mu.Lock()
	nodes, applications, version := c.b.totals.Members(), c.b.totals.Apps(), c.b.version
	current := c.b.current
	ordered, remaining, first := len(c.b.orders.places), 0.0, 0.0
	for _, p := range c.b.orders.places {
		remaining, first = remaining+p.Remaining.Bytes, max(first, p.Part)
	}
	deadlines := map[string]int{}
	for name, g := range c.b.deadlines {
		state, _ := c.b.deadlineState(name, g)
		deadlines[state]++
	}
	spread, moved := c.b.slowdowns.spread, c.b.slowdowns.count
	c.b.mu.Unlock()
	for _, state := range deadlineStates {
		out <- prometheus.MustNewConstMetric(deadlinesDesc, prometheus.GaugeValue, float64(deadlines[state]), state)
	}
	for d, v := range map[*prometheus.Desc]float64{nodesDesc: float64(nodes), applicationsDesc: float64(applications),
		orderedDesc: float64(ordered), remainingDesc: remaining, firstSliceDesc: first,
		spreadDesc: spread, movedDesc: float64(moved),
		policyDesc: float64(version), killSwitchDesc: map[bool]float64{true: 1}[current.Off], canaryDesc: float64(current.Canary.Percent), connectionsDesc: float64(c.b.connections.open())} {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	leading := 0.0
	if c.b.leadership.State().Leading {
		leading = 1
		c.b.collectApplications(out)
	}
	out <- prometheus.MustNewConstMetric(leadingDesc, prometheus.GaugeValue, leading)
}

// maxMetricsConnections is the maximum number of connections of the server for metrics.
const maxMetricsConnections = 128

// ServeMetrics serves /metrics until the listener is closed, to those who have the token; nil: to all. On a loopback address it
// also serves Go's profiles; they cost processor time, so other machines have no access to them.
func (b *Broker) ServeMetrics(l net.Listener, token *web.Token) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", web.Few(promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{})))
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	}
	s := &http.Server{Handler: token.Authorized(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	if err := s.Serve(web.Bounded(l, maxMetricsConnections)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
