package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/core/reserve"
	"penstock/node/device"
)

// This file keeps the series of flows few. A device remembers thousands of flows of applications that have ended, and a
// flow has about 25 series. A flow has series while it has streams or bytes to write, and for flowSeriesAge after
// its counters have last changed. If the flow returns, its counters continue. The setting flow_metrics
// switches these series off, or keeps those of all flows.

// flowSeriesAge is longer than usual intervals of scrapes and windows of alerts.
const flowSeriesAge = 10 * time.Minute

var (
	flowBytesDesc    = desc("flow_bytes_total", "Bytes that the device moved for the flow.", "device", "flow", "kind", "direction")
	flowStreamedDesc = desc("flow_streamed_bytes_total", "Bytes that the flow's streams read, wrote or sent, moved by the device or not.", "device", "flow", "kind", "direction")
	flowResidentDesc = desc("flow_resident_bytes_total", "Bytes read that were in the page cache: not charged.", "device", "flow")
	flowBehindDesc   = desc("flow_unscheduled_bytes_total", "Bytes that the kernel moved for the flow outside the schedule; charged.", "device", "flow")
	flowServiceDesc  = desc("flow_service_seconds_total", "Device time charged to the flow.", "device", "flow", "kind")
	flowRequestsDesc = desc("flow_requests_total", "Requests that the device served for the flow.", "device", "flow")
	flowWeightDesc   = desc("flow_weight", "Weight in force.", "device", "flow")
	flowBacklogDesc  = desc("flow_backlog_bytes", "Bytes written that the device does not have yet.", "device", "flow")
	flowQueuedDesc   = desc("flow_queued_requests", "Streams with a request that waits for its turn.", "device", "flow")
	flowStreamsDesc  = desc("flow_streams", "Streams open.", "device", "flow")
	flowWaitsDesc    = desc("flow_waits_total", "Times a stream waited at its mark.", "device", "flow")
	flowForcedDesc   = desc("flow_forced_total", "Packets that passed because a stream had waited as long as its client allows.", "device", "flow")
	flowPacketsDesc  = desc("flow_forced_bytes_total", "Bytes of the packets that penstock_flow_forced_total counts.", "device", "flow")
	flowStandingDesc = desc("flow_standing_streams", "Streams at their marks now; in observe mode, streams beyond the marks that enforcement would have set.", "device", "flow")
	flowRefusedDesc  = desc("flow_refused_total", "Reads refused before they began, because too many reads of the flow were waiting.", "device", "flow")
	flowLimitDesc    = desc("flow_limit_waits_total", "Times that the flow's next request waited for its limit.", "device", "flow")
	flowReservedDesc = desc("flow_reserved_bytes_total", "Bytes of requests that started before their turn by weight, because of the guaranteed rate.", "device", "flow")
	flowGrantedDesc  = desc("flow_reserve_granted_ratio", "Part of the flow's guaranteed rate that is enforced: below 1 it is queued or reduced. Only for flows that use the device.", "device", "flow")
	flowGoalDesc     = desc("flow_latency_goal_seconds", "Goal of the 99th percentile of the flow's small reads.", "device", "flow")
	flowP99Desc      = desc("flow_latency_p99_seconds", "The 99th percentile of the flow's small reads of the last minute that needed the device. Only for flows with a goal.", "device", "flow")
	flowPromiseDesc  = desc("flow_promise_seconds_total", "Time in which the flow was backlogged, by whether its guaranteed rate was kept or broken.", "device", "flow", "state")
	flowKeptDesc     = desc("flow_lazy_files", "Closed files of kind intermediate that wait to be deleted or drained.", "device", "flow")
	flowDroppedDesc  = desc("flow_lazy_dropped_files_total", "Files of kind intermediate that were deleted before they were drained.", "device", "flow")
	flowSavedDesc    = desc("flow_lazy_dropped_bytes_total", "Bytes of such files that were never written to the device.", "device", "flow")
	flowWouldDesc    = desc("flow_would_wait_seconds_total", "Observe mode: time for which enforcement would have delayed streams.", "device", "flow")
)

// flowSeries remembers when flows were last used. Its methods must not be called concurrently.
type flowSeries struct {
	all  bool                          // flows keep their series
	used map[string]map[string]flowUse // by device and flow
}

type flowUse struct {
	activity int64     // sum of counters that grow with any use
	at       time.Time // when it was last seen to have changed
}

// newFlowSeries returns the series for a value of the setting flow_metrics.
func newFlowSeries(setting string) *flowSeries {
	if setting == "off" {
		return nil
	}
	return &flowSeries{all: setting == "all", used: map[string]map[string]flowUse{}}
}

// collect sends the series of a device's flows. s may be nil.
func (s *flowSeries) collect(dev string, flows []device.FlowSnapshot, now time.Time, out chan<- prometheus.Metric) {
	if s == nil {
		return
	}
	before, used := s.used[dev], make(map[string]flowUse, len(flows))
	for i := range flows {
		f := &flows[i]
		use := flowUse{activity: f.Requests + f.Resident + f.Behind + f.Waits + f.Refused, at: now}
		for _, k := range f.Kinds {
			use.activity += k.Streamed[0] + k.Streamed[1]
		}
		if was, known := before[f.Name]; known && was.activity == use.activity && f.Streams == 0 && f.Backlog == 0 && f.Kept == 0 {
			use.at = was.at
		}
		used[f.Name] = use
		if s.all || now.Sub(use.at) < flowSeriesAge {
			sendFlow(dev, f, out)
		}
	}
	s.used[dev] = used
}

// sendFlow sends the series of one flow.
func sendFlow(dev string, f *device.FlowSnapshot, out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, k := range f.Kinds {
		kind := k.Kind.String()
		for i, direction := range []string{"read", "write"} {
			count(flowBytesDesc, float64(k.Bytes[i]), dev, f.Name, kind, direction)
			count(flowStreamedDesc, float64(k.Streamed[i]), dev, f.Name, kind, direction)
		}
		count(flowServiceDesc, k.Service.Seconds(), dev, f.Name, kind)
	}
	count(flowResidentDesc, float64(f.Resident), dev, f.Name)
	count(flowBehindDesc, float64(f.Behind), dev, f.Name)
	count(flowRequestsDesc, float64(f.Requests), dev, f.Name)
	gauge(flowWeightDesc, float64(f.Weight), dev, f.Name)
	gauge(flowBacklogDesc, float64(f.Backlog), dev, f.Name)
	gauge(flowQueuedDesc, float64(f.Queued), dev, f.Name)
	gauge(flowStreamsDesc, float64(f.Streams), dev, f.Name)
	count(flowWaitsDesc, float64(f.Waits), dev, f.Name)
	count(flowForcedDesc, float64(f.Forced), dev, f.Name)
	count(flowPacketsDesc, float64(f.ForcedBytes), dev, f.Name)
	gauge(flowStandingDesc, float64(f.Standing), dev, f.Name)
	count(flowRefusedDesc, float64(f.Refused), dev, f.Name)
	count(flowLimitDesc, float64(f.LimitWaits), dev, f.Name)
	if l := f.Latency; l.Goal > 0 {
		gauge(flowGoalDesc, l.Goal.Seconds(), dev, f.Name)
		gauge(flowP99Desc, l.P99.Seconds(), dev, f.Name)
	}
	if v := f.Reserve; v.Rate != (reserve.Rate{}) {
		count(flowReservedDesc, float64(v.Moved), dev, f.Name)
		if v.Verdict.State != reserve.Unused {
			gauge(flowGrantedDesc, v.Verdict.Granted, dev, f.Name)
		}
		count(flowPromiseDesc, v.Kept.Seconds(), dev, f.Name, "kept")
		count(flowPromiseDesc, v.Broken.Seconds(), dev, f.Name, "broken")
	}
	gauge(flowKeptDesc, float64(f.Kept), dev, f.Name)
	count(flowDroppedDesc, float64(f.Dropped), dev, f.Name)
	count(flowSavedDesc, float64(f.DroppedBytes), dev, f.Name)
	count(flowWouldDesc, f.WouldWait.Seconds(), dev, f.Name)
}
