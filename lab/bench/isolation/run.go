package isolation

import (
	"math"
	"slices"
	"strings"
	"time"
)

// MB is the unit of every throughput here: disks are sold, and modelled, in
// decimal megabytes.
const megabyte = 1_000_000

// Run is one finished run of one phase, as the journal keeps it. Every figure is over the
// window, in which both jobs run: from the protected job's start to its end by the
// ResourceManager, or from its query to the answer.
type Run struct {
	Phase   string    `json:"phase"`
	Number  int       `json:"run"`
	Build   string    `json:"build"` // of penstock
	Started time.Time `json:"started"`

	Protected  string  `json:"protected"`           // application id
	Aggressor  string  `json:"aggressor,omitempty"` // application id, or ids with spaces between them
	RuntimeS   float64 `json:"runtime_s"`           // the window's length: the protected job's, or the aggressor's when it is alone
	ReadBytes  float64 `json:"device_read_bytes"`   // all modelled disks
	WriteBytes float64 `json:"device_write_bytes"`
	DeviceMBps float64 `json:"device_mb_s"`
	DemandMBps float64 `json:"demand_mb_s"` // device MB/s between 5 % and 95 % of the window's bytes

	Depth        *Periods `json:"depth_periods,omitempty"`  // control periods in the window, busy devices
	LatencyP99MS *float64 `json:"request_p99_ms,omitempty"` // Penstock's requests
	AfterS       float64  `json:"after_s"`                  // from the window's end until the outputs were checked
	// AggressorRuntimeS is from the aggressor's start to its end; 0 if it was not waited for.
	AggressorRuntimeS float64  `json:"aggressor_runtime_s,omitempty"`
	AggressorVerdict  *Verdict `json:"aggressor_verdict,omitempty"` // over that time, without a series

	Killed   bool     `json:"aggressor_killed,omitempty"` // after the window, so its output was not checked
	Series   Series   `json:"series"`                     // for the plots
	Verdict  *Verdict `json:"verdict,omitempty"`          // the independent judge's account
	Warnings []string `json:"warnings,omitempty"`         // problems short of failure
}

func (r *Run) aggressors() []string { return strings.Fields(r.Aggressor) }

// Series is the run over time, in steps from the window's start.
type Series struct {
	StepSeconds float64              `json:"step_s"`
	Disks       map[string][]float64 `json:"disks_mb_s"` // read + written, MB/s
	Scrapes     []Scrape             `json:"scrapes,omitempty"`
}

// Scrape is the part of one scrape of the daemon that the charts need.
type Scrape struct {
	At          float64            `json:"at_s"`
	Depth       map[string]float64 `json:"depth,omitempty"`
	LatencyMS   map[string]float64 `json:"latency_ms,omitempty"`
	ReferenceMS map[string]float64 `json:"reference_ms,omitempty"`
	FlowBytes   map[string]float64 `json:"flow_bytes,omitempty"` // by flow, all devices, since the daemon started
}

// diskSample and scrapeSample are collected by the sampler.
type diskSample struct {
	at    time.Time
	disks []DiskCounters
}

type scrapeSample struct {
	at time.Time
	m  Metrics
}

const seriesStep = time.Second

// measure computes the run's figures from the samples and the window.
func (r *Run) measure(disks []diskSample, scrapes []scrapeSample, from, to time.Time) {
	r.RuntimeS = to.Sub(from).Seconds()
	names := diskNames(disks)
	for _, name := range names {
		r.ReadBytes += grown(disks, from, to, name, reads)
		r.WriteBytes += grown(disks, from, to, name, writes)
	}
	if r.RuntimeS > 0 {
		r.DeviceMBps = (r.ReadBytes + r.WriteBytes) / megabyte / r.RuntimeS
	}
	r.Series = Series{StepSeconds: seriesStep.Seconds(), Disks: map[string][]float64{}}
	for _, name := range names {
		var mbps []float64
		for t := from; t.Before(to); t = t.Add(seriesStep) {
			end := t.Add(seriesStep)
			if end.After(to) {
				end = to
			}
			mbps = append(mbps, round3(grown(disks, t, end, name, both)/megabyte/end.Sub(t).Seconds()))
		}
		r.Series.Disks[name] = mbps
	}
	r.DemandMBps = demand(r.Series)
	r.measureScrapes(scrapes, from, to)
}

func (r *Run) measureScrapes(scrapes []scrapeSample, from, to time.Time) {
	inside := slices.DeleteFunc(slices.Clone(scrapes), func(s scrapeSample) bool {
		return s.at.Before(from) || s.at.After(to)
	})
	if len(inside) == 0 {
		return
	}
	first, last := inside[0].m, inside[len(inside)-1].m
	for _, s := range inside {
		out := Scrape{At: round3(s.at.Sub(from).Seconds()), Depth: s.m.Depth,
			LatencyMS: scaled(s.m.Latency, 1000), ReferenceMS: scaled(s.m.Reference, 1000),
			FlowBytes: map[string]float64{}}
		for k, v := range s.m.FlowBytes {
			out.FlowBytes[k.Flow] += v
		}
		r.Series.Scrapes = append(r.Series.Scrapes, out)
	}
	// A device with only a few blocks says nothing about the controller.
	busy := map[string]float64{}
	for k, v := range last.FlowBytes {
		busy[k.Device] += v - first.FlowBytes[k]
	}
	var p Periods
	for device, end := range last.Periods {
		if busy[device] < busyBytes {
			continue
		}
		start := first.Periods[device]
		p.Min += end.Min - start.Min
		p.Max += end.Max - start.Max
		p.Between += end.Between - start.Between
	}
	if p.Min+p.Max+p.Between > 0 {
		r.Depth = &p
	}
	if q := requestQuantile(first.Requests, last.Requests, 0.99); !math.IsNaN(q) {
		ms := q * 1000
		r.LatencyP99MS = &ms
	}
}

// busyBytes is the least that a device must have moved in the window for its depth to
// count.
const busyBytes = 16 * mib

func reads(c DiskCounters) int64  { return c.ReadBytes }
func writes(c DiskCounters) int64 { return c.WriteBytes }
func both(c DiskCounters) int64   { return c.ReadBytes + c.WriteBytes }

func diskNames(samples []diskSample) []string {
	if len(samples) == 0 {
		return nil
	}
	var names []string
	for _, d := range samples[0].disks {
		names = append(names, d.Name)
	}
	return names
}

// grown returns the growth of a counter from one instant to another, by linear
// interpolation between samples. Instants outside the samples count as the nearest one.
func grown(samples []diskSample, from, to time.Time, name string, of func(DiskCounters) int64) float64 {
	return counterAt(samples, to, name, of) - counterAt(samples, from, name, of)
}

func counterAt(samples []diskSample, at time.Time, name string, of func(DiskCounters) int64) float64 {
	i, _ := slices.BinarySearchFunc(samples, at, func(s diskSample, t time.Time) int { return s.at.Compare(t) })
	switch {
	case len(samples) == 0:
		return 0
	case i == 0:
		return counter(samples[0], name, of)
	case i == len(samples):
		return counter(samples[i-1], name, of)
	}
	a, b := samples[i-1], samples[i]
	part := float64(at.Sub(a.at)) / float64(b.at.Sub(a.at))
	x, y := counter(a, name, of), counter(b, name, of)
	return x + part*(y-x)
}

func counter(s diskSample, name string, of func(DiskCounters) int64) float64 {
	for _, d := range s.disks {
		if d.Name == name {
			return float64(of(d))
		}
	}
	return 0
}

// demand returns the device MB/s between the instants at which 5 % and 95 % of the bytes
// were moved: start and end of a job do no I/O.
func demand(s Series) float64 {
	var total []float64
	var sum float64
	for _, one := range s.Disks {
		for i, v := range one {
			if i == len(total) {
				total = append(total, 0)
			}
			total[i] += v
			sum += v
		}
	}
	var before, inner float64
	steps := 0
	for _, v := range total {
		if before+v/2 >= 0.05*sum && before+v/2 <= 0.95*sum {
			inner += v
			steps++
		}
		before += v
	}
	if steps == 0 {
		return 0
	}
	return inner / float64(steps)
}

func scaled(m map[string]float64, by float64) map[string]float64 {
	out := make(map[string]float64, len(m))
	for k, v := range m {
		out[k] = round3(v * by)
	}
	return out
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }
