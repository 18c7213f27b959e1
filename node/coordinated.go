package node

import (
	"crypto/tls"
	"maps"
	"math"
	"slices"
	"time"

	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/node/config"
	"penstock/node/coordination"
	"penstock/node/device"
	"penstock/wire/cluster"
)

// This file applies what the broker sends: parts go to the device loops as they arrive, and the
// rights that the cluster's policy grants override the weights file.

// partScale is the WeightScale of device.Config on a node with a broker. A part may be a small
// fraction of a weight, because many applications may divide a queue's weight.
const partScale = 1 << 19

// newCoordination creates the client of the brokers in the settings; it returns nil if the settings
// name no brokers.
func (d *Daemon) newCoordination(b *config.Broker) (*coordination.Client, error) {
	if b == nil {
		return nil, nil
	}
	var secure func() (*tls.Config, error)
	if files := (cluster.Files{CA: b.CA, Cert: b.Cert, Key: b.Key}); !files.Empty() {
		if _, err := files.Client(); err != nil {
			return nil, err
		}
		secure = files.Client
	}
	return coordination.New(coordination.Options{
		Node: b.Node, Brokers: b.Addresses, TLS: secure, Period: time.Duration(b.Period),
		Devices: d.coordinated, Rights: d.setRights, Bound: d.setBound, Mode: d.currentMode, LimitLease: time.Duration(b.LimitLease), Log: d.log,
	})
}

// coordinated returns the devices whose service counts in the cluster's totals: disks.
func (d *Daemon) coordinated() []coordination.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []coordination.Device
	for _, name := range slices.Sorted(maps.Keys(d.devices)) {
		if g := d.devices[name]; !g.config.Network {
			all = append(all, (*coordinated)(g))
		}
	}
	return all
}

// coordinated is a device in the form that the coordination needs.
type coordinated governed

func (g *coordinated) Name() string { return g.dev.Name }

func (g *coordinated) SetParts(parts coordination.Parts) {
	of := device.Parts(parts)
	g.parts.Store(&of)
	signal(g.partsChanged)
}

func (g *coordinated) SetTotals(totals map[string]policy.Total) {
	g.totals.Store(&totals)
	signal(g.rulesChanged)
}

// withTotals returns the policy with the device's parts of total rates.
func (g *governed) withTotals(local device.Policy) device.Policy {
	totals := g.totals.Load()
	if totals == nil || len(*totals) == 0 {
		return local
	}
	return func(flow string) device.Rule {
		rule := local(flow)
		t := (*totals)[flow] // the zero value changes nothing
		return rule.WithTotal(t.Reserve, t.Limit)
	}
}

func (g *coordinated) Uses() ([]coordination.Use, int64, bool) {
	snap, ok := (*governed)(g).snapshot()
	if !ok {
		return nil, 0, false
	}
	uses := make([]coordination.Use, len(snap.Flows))
	for i, f := range snap.Flows {
		uses[i] = coordination.Use{Flow: f.Name, Service: f.Service, Wanted: f.Wanted, Bytes: f.Bytes[0] + f.Bytes[1], LimitWaits: f.LimitWaits,
			Streams: f.Stalls.Streams, Waited: f.Stalls.Waited, Contended: f.Stalls.Contended}
	}
	return uses, snap.Guaranteeable, true
}

// setRights puts the grants of the cluster's policy into force.
func (d *Daemon) setRights(rights map[string]coordination.Right) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.granted, d.queues = rights, map[string]*device.Queue{}
	for flow, r := range rights {
		if len(r.Queues) > 0 {
			d.queues[flow] = device.NewQueue(r.Queues)
		}
	}
	d.apply()
}

// setBound puts the strongest mode that the cluster's policy allows this node into force.
func (d *Daemon) setBound(most device.Mode) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bound = most
	d.mode = d.wantedMode()
	d.apply()
	d.log.Warn("the strongest mode that the cluster's policy allows this node has changed", "strongest", most.String(), "mode", d.mode.String())
}

// localPolicy returns the weights file's policy. d.mu is held.
func (d *Daemon) localPolicy() device.Policy {
	weights := d.weights
	if !weights.UsesBandwidth() || d.orchestrators == nil {
		return weights.Policy
	}
	requested := d.orchestrators.Requested()
	return func(flow string) device.Rule { return weights.PolicyWith(flow, requested) }
}

// policy returns the weights file's policy, overridden by the cluster's grants. d.mu is held.
func (d *Daemon) policy() device.Policy {
	local, rights, queues := d.localPolicy(), d.granted, d.queues
	if len(rights) == 0 {
		return local
	}
	return func(flow string) device.Rule {
		rule := local(flow)
		if r, ok := rights[flow]; ok {
			rule.Weight, rule.Queue = int(min(max(math.Round(r.Weight), 1), sfq.MaxWeight)), queues[flow]
			if r.Limit > 0 && (rule.Limit == 0 || r.Limit < rule.Limit) {
				rule.Limit = max(r.Limit, device.MinLimit)
			}
			if r.Reserve != (reserve.Rate{}) {
				rule.Reserve, rule.Order = r.Reserve, r.Order
			} else if rule.Reserve == (reserve.Rate{}) { // it may have a part of a total reserve
				rule.Order = r.Order
			}
			if r.Latency > 0 {
				rule.Latency = r.Latency
			}
			if rule.Limit > 0 {
				rule.Reserve.Bytes = min(rule.Reserve.Bytes, rule.Limit)
			}
		}
		return rule
	}
}
