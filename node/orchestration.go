package node

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"penstock/node/config"
	"penstock/node/deviceplugin"
	"penstock/node/identity"
	"penstock/node/monitor/owner"
	"penstock/node/orchestrators"
	"penstock/node/status"
)

// This file connects what the kubelet and the Mesos agent report (package orchestrators) with the rest of the daemon:
// names of owners, evidence for applications, and the status.

// newOrchestrators returns the directory that the settings ask for; nil: none.
func (d *Daemon) newOrchestrators(o *config.Orchestrators) *orchestrators.Directory {
	if o == nil || o.Kubernetes == nil && o.Mesos == nil {
		return nil
	}
	options := orchestrators.Options{Log: d.log, Changed: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.weights.UsesBandwidth() {
			d.apply()
		}
	}}
	if d.processes.Watch != nil {
		options.Running = d.processes.Containers
	}
	if k := o.Kubernetes; k != nil {
		options.Kubernetes = &orchestrators.Source{URL: k.URL, Access: k.Access(), Period: time.Duration(k.Period), Resource: k.Resource, Applications: k.Applications}
	}
	if m := o.Mesos; m != nil {
		options.Mesos = &orchestrators.Source{URL: m.URL, Access: m.Access(), Period: time.Duration(m.Period), Resource: m.Resource, Applications: m.Applications}
	}
	return orchestrators.New(options)
}

// newDevicePlugin returns the plug-in that the settings ask for; nil: none.
func (d *Daemon) newDevicePlugin(o *config.Orchestrators) *deviceplugin.Plugin {
	if o == nil || o.Kubernetes == nil || o.Kubernetes.DevicePlugin == nil {
		return nil
	}
	p := o.Kubernetes.DevicePlugin
	return deviceplugin.New(deviceplugin.Options{Folder: p.Folder, Resource: o.Kubernetes.Resource, Bandwidth: p.Bandwidth, Log: d.log})
}

// evidence shows the identity checker the containers of orchestrators.
type evidence struct{ *orchestrators.Directory }

// Of implements identity.Containers.
func (e evidence) Of(o owner.Owner) (identity.Container, bool) {
	c, knowledge := e.Directory.Of(o)
	return containerOf(c), knowledge != orchestrators.Missing
}

// At implements identity.Containers.
func (e evidence) At(address netip.Addr) (identity.Container, bool) {
	c, ok := e.Directory.At(address)
	return containerOf(c), ok
}

// containerOf returns a container's application only if it has a flow of its own.
func containerOf(c orchestrators.Container) identity.Container {
	if !c.Flow {
		return identity.Container{Name: c.Name}
	}
	return identity.Container{Name: c.Name, Application: c.Application}
}

// namedOwner returns an owner for the status document, with its application and its name if an orchestrator knows
// them.
func namedOwner(names *orchestrators.Directory, o owner.Owner) status.Owner {
	out := status.Owner{Kind: string(o.Kind), ID: o.ID, Application: o.Application, Pod: o.Pod, Delegated: o.Delegated, Short: o.String()}
	c, knowledge := names.Of(o)
	if knowledge != orchestrators.Known {
		return out
	}
	out.Application = c.Application
	// Several containers may have one name; the beginning of their ids tells them apart.
	const digits = 12
	out.Short = strings.Join(nonEmpty(c.Application, cmp.Or(c.Name, o.Pod), o.ID[:min(digits, len(o.ID))]), " ")
	return out
}

func nonEmpty(words ...string) (out []string) {
	for _, w := range words {
		if w != "" {
			out = append(out, w)
		}
	}
	return out
}

// maxStatusOrchestrated is the maximum number of applications of one orchestrator in the status document.
const maxStatusOrchestrated = 256

// orchestratorStatus returns the state of each orchestrator.
func (d *Daemon) orchestratorStatus() []status.Orchestrator {
	all := []status.Orchestrator{}
	for _, s := range d.orchestrators.States() {
		o := status.Orchestrator{Kind: string(s.Kind), URL: s.URL, Answered: s.Answered, Error: s.Error, Failures: s.Failures, SlowFiles: s.SlowFiles,
			Containers: s.Containers, Absent: s.Absent, Skipped: s.Skipped, LeftOut: s.LeftOut, Offered: s.Offered, Top: []status.Orchestrated{}}
		if s.Kind == owner.Kubernetes && d.devicePlugin != nil {
			k, p := d.settings.Orchestrators.Kubernetes, d.devicePlugin.State()
			o.DevicePlugin = &status.DevicePlugin{Resource: k.Resource, Offered: k.DevicePlugin.Bandwidth, Registered: p.Registered, Watched: p.Watched, Error: p.Error}
		}
		for _, a := range s.Applications {
			if len(o.Top) >= maxStatusOrchestrated {
				o.LeftOff++
				continue
			}
			o.Top = append(o.Top, status.Orchestrated{Name: a.Name, Title: a.Title, Workload: a.Kind, OwnFlow: a.Flow, Containers: a.Containers, Requested: a.Bandwidth, CPUs: a.CPUs, MemoryMB: a.Memory})
		}
		all = append(all, o)
	}
	return all
}
