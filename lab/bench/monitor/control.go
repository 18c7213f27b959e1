package monitor

import (
	"context"
	"fmt"

	"penstock/lab/client"
	"penstock/lab/daemon"
)

// govern starts the daemon with the settings and the weights of a row.
func (m *machine) govern(ctx context.Context, r Row) error {
	weights, err := m.weights(r)
	if err != nil {
		return err
	}
	err = m.RestartNode(ctx, 0, func(o *daemon.Options) {
		o.Mode, o.More, o.Device, o.Weights = "enforce", daemon.Believe, "", weights
		if m.disk.Rate > 0 {
			o.Device = m.setup.deviceSettings(m.disk)
		}
		switch mechanism := r.mechanism(); {
		case r.Control == Native:
			o.Mode = "observe"
		case mechanism != "":
			o.More += fmt.Sprintf("control: {mode: enforce, directories: [%s], mechanisms: [%s]}\n", m.Disks[0].Mount(), mechanism)
		}
	})
	if err != nil {
		return err
	}
	return m.AwaitAgents(ctx, 0, 1)
}

// mechanism returns the mechanism of kernel control that holds the row's background, or "" if none does.
func (r Row) mechanism() string {
	switch {
	case r.Beside == None || r.Control == Native:
		return ""
	case r.Control == Paper && r.Beside.local():
		return "cgroup"
	case r.Control == Paper:
		return "shaper"
	case r.Beside.local():
		return "gate"
	}
	return "" // the arbiter
}

// processFlow is the flow of the background's process.
const processFlow = "fio"

// weights returns the weights file of a row.
func (m *machine) weights(r Row) (string, error) {
	text := "default: 1\n"
	if r.Control == Paper {
		// The arbiter observes only, so that it does not hold HDFS's bytes.
		text += "rules: [{application: \"*\", mode: observe}]\n"
	}
	switch {
	case r.Preferred != "":
		text += fmt.Sprintf("rules: [{application: %s, weight: %d}]\n", m.applications[r.Preferred].orders.ID, m.setup.Preference)
	case r.Beside == None || r.Control == Native:
	case r.Beside.local():
		cgroup, err := cgroupOf(m.fio)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("processes: [{name: %s, cgroup: %s, limit: %d}]\n", processFlow, cgroup, m.disk.Limit)
	case r.Control == Paper:
		text += fmt.Sprintf("connections: [{application: %s, limit: %d}]\n", client.Application(backgroundNumber), m.disk.Limit)
	default:
		text += fmt.Sprintf("rules: [{application: %s, limit: %d}]\n", client.Application(backgroundNumber), m.disk.Limit)
	}
	return text, nil
}

// held waits until kernel control holds the row's background.
func (m *machine) held(ctx context.Context, r Row) error {
	if r.mechanism() == "" {
		return nil
	}
	flow := client.Application(backgroundNumber)
	if r.Beside.local() {
		flow = "process:" + processFlow
	}
	return m.Await(ctx, flow+" is held", func(ctx context.Context) (bool, error) {
		doc, err := m.Status(ctx, 0)
		if err != nil {
			return false, err
		}
		if !doc.Control.Held(flow) {
			return false, fmt.Errorf("not held yet: %+v", doc.Control)
		}
		for _, h := range doc.Control.Holds {
			if h.Error != "" {
				return false, fmt.Errorf("%s: %s", h.Where, h.Error)
			}
		}
		return true, nil
	})
}
