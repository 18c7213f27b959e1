package forecast

import (
	"time"

	"penstock/core/coord"
)

// Account feeds the Model of one application in a cluster with its progress, from the cluster manager, and with its use of disks, from
// the nodes' reports. Nodes report rates, so an Account adds them up over time. Its zero value is ready for use.
type Account struct {
	Model Model

	at      time.Duration // of the last state
	known   bool          // at is set
	service float64       // seconds of device time
	moved   float64       // bytes
	devices float64
}

// State is what is known of an application at one time.
type State struct {
	// Progress, Boundary and Work are those of Observation.
	Progress, Boundary, Work float64
	// Total is what all nodes together have reported of the application.
	Total coord.Service
	// Rates is the rate of service of all applications together, in the unit of coord.Service; 0: not known.
	Rates float64
	// Entitled is the part of the cluster's service, 0 to 1, to which the application's weight entitles it; 0: not known.
	Entitled float64
	// Guaranteed is the application's guaranteed rate at present, in bytes per second over all devices; 0: none.
	Guaranteed float64
}

// Observe adds the state at a time to the model. The last report counts for the time since the last state, at most for silent.
// The share is the largest of three: the application's entitlement, the part of its devices that its guaranteed rate takes, and the part
// of the cluster's service that the application has. The last one is larger than the entitlement if other applications use less than
// theirs. Observe returns the observation that it has added.
func (a *Account) Observe(now, silent time.Duration, s State) Observation {
	if a.known {
		passed := min(now-a.at, silent).Seconds()
		a.service += float64(served(s.Total)) / coord.Second * passed
		a.moved += float64(s.Total.Bytes) * passed
	}
	a.devices = max(a.devices, float64(s.Total.Room)/coord.Second)
	a.at, a.known = now, true
	o := Observation{Time: now, Progress: s.Progress, Service: -1, Bytes: a.moved, Boundary: s.Boundary, Work: s.Work, Share: s.Entitled}
	if a.devices > 0 {
		o.Service = a.service / a.devices
	}
	if s.Rates > 0 {
		o.Share = max(o.Share, float64(s.Total.Rate)/s.Rates)
	}
	if s.Guaranteed > 0 && a.moved > 0 && a.devices > 0 { // the part of its devices that its guaranteed rate takes
		o.Share = max(o.Share, min(1, s.Guaranteed*a.service/a.moved/a.devices))
	}
	a.Model.Observe(o)
	return o
}

// served returns the measured service. Total.Rate follows a guaranteed rate only after many seconds, because it is the service to which
// the parts in force entitle the application, with an average of the deviations (coord.Device.Report). Nodes of earlier versions
// report only the rate.
func served(total coord.Service) int64 {
	if total.Touched > 0 {
		return total.Used
	}
	return total.Rate
}

// At returns the time of the last state.
func (a *Account) At() time.Duration { return a.at }

// Devices returns the most devices on which the application had a backlog at once; 0: not known.
func (a *Account) Devices() float64 { return a.devices }
