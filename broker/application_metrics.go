package broker

import (
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/core/coord"
)

// Metrics of applications. A cluster runs thousands of applications a day, each with a name of its own, on thousands of
// nodes. So these metrics are totals of the cluster, and only the applications with most service have series of their
// own. An application that has ended has none. The others are added up under one label, so that sums are complete.
// Names come from nodes, so an application with the name of this label is added to the others as well.

// OtherApplications is the label of the applications without series of their own.
const OtherApplications = "others"

var (
	appServiceDesc = desc("application_service_seconds_per_second", "Seconds of device time per second that all nodes spend on the application: 1 is one device's whole time.", "application")
	appBytesDesc   = desc("application_bytes_per_second", "Bytes per second that devices move for the application.", "application")
	appDueDesc     = desc("application_due_ratio", "Part of all service, 0 to 1, that the policy's weights give the application.", "application")
	appNodesDesc   = desc("application_nodes", "Nodes that serve the application.", "application")
	appHungryDesc  = desc("application_hungry_nodes", "Of these nodes, those on which the application could move more.", "application")
	appReachedDesc = desc("application_total_reserve_reached_ratio", "Part of its total_reserve that the application had in the last window of 30 s that counts.", "application")
)

var appDescs = []*prometheus.Desc{appServiceDesc, appBytesDesc, appDueDesc, appNodesDesc, appHungryDesc, appReachedDesc}

// appFigures are the figures of one application, or of all others.
type appFigures struct {
	name                string
	service, bytes, due float64
	nodes, hungry       int
	reached             float64 // NaN: without a total_reserve
}

// applicationFigures returns the figures of the applications that have not ended, those with most service first, and the
// sum of those beyond the bound.
func (b *Broker) applicationFigures(bound int) (own []appFigures, others appFigures) {
	var all []appFigures
	b.mu.Lock()
	b.totals.Each(func(_ coord.App, name string, nodes int, total coord.Service) {
		right := b.rights[name]
		f := appFigures{name: name, service: float64(total.Rate) / coord.Second, bytes: float64(total.Bytes), due: right.weight, nodes: nodes, hungry: int(total.Hungry), reached: math.NaN()}
		if t := b.totalRates[name]; t != nil && t.Total.Reserve > 0 && len(t.History.Last) > 0 {
			f.reached = float64(t.History.Last[len(t.History.Last)-1]) / float64(t.Total.Reserve)
		}
		all = append(all, f)
	})
	b.mu.Unlock()
	all = slices.DeleteFunc(all, func(f appFigures) bool { return b.options.Life(f.name).Ended })
	slices.SortFunc(all, func(x, y appFigures) int {
		return cmp.Or(cmp.Compare(y.service, x.service), cmp.Compare(x.name, y.name))
	})
	weights := 0.0
	for _, f := range all {
		weights += f.due
	}
	for _, f := range all {
		f.due /= max(weights, math.SmallestNonzeroFloat64)
		if len(own) < bound && f.name != OtherApplications {
			own = append(own, f)
			continue
		}
		others.service, others.bytes, others.due = others.service+f.service, others.bytes+f.bytes, others.due+f.due
	}
	return own, others
}

// collectApplications sends the metrics of applications.
func (b *Broker) collectApplications(out chan<- prometheus.Metric) {
	if b.options.ApplicationSeries <= 0 {
		return
	}
	own, others := b.applicationFigures(b.options.ApplicationSeries)
	send := func(d *prometheus.Desc, v float64, name string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
	}
	shared := func(f appFigures, name string) {
		send(appServiceDesc, f.service, name)
		send(appBytesDesc, f.bytes, name)
		send(appDueDesc, f.due, name)
	}
	for _, f := range own {
		shared(f, f.name)
		send(appNodesDesc, float64(f.nodes), f.name)
		send(appHungryDesc, float64(f.hungry), f.name)
		if !math.IsNaN(f.reached) {
			send(appReachedDesc, f.reached, f.name)
		}
	}
	shared(others, OtherApplications)
}
