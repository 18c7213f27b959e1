package characterise

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"penstock/core/character"
	"penstock/node/status"
)

const head = `{"penstock_application_profile":1,"application":"a","nodes":[{"name":"n","cores":2,"memory_bytes":1000,"disks":1}]}` + "\n"

func TestRead(t *testing.T) {
	const two = `{"node":0,"at_ns":0}` + "\n" + `{"node":0,"at_ns":5000000000,"cpu_ns":8000000000,"device_ns":1000000000}` + "\n"
	f, err := Read(strings.NewReader(head + two))
	if err != nil || f.Torn {
		t.Fatal(err, f)
	}
	p, err := character.New(f.Samples, character.DefaultThresholds)
	if err != nil || character.Class(p.Intensive) != "CPU-intensive" || p.Mean[character.Disk] != 0.2 {
		t.Fatalf("%+v, %v", p, err)
	}
	var out bytes.Buffer
	if err := Write(&out, "a", p, character.DefaultThresholds); err != nil || !strings.Contains(out.String(), "a is CPU-intensive: over 5s on 1 nodes it uses 80 % of CPU (intensive from 50 %)") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := WritePairs(&out, []string{"a", "b"}, []*character.Profile{p, p}); err != nil || strings.Count(out.String(), "poor 1.60 CPU") != 4 {
		t.Errorf("%v\n%s", err, out.String())
	}
	if f, err := Read(strings.NewReader(head + two + `{"node":0,"at`)); err != nil || !f.Torn || len(f.Samples[0].Samples) != 2 {
		t.Errorf("torn: %+v, %v", f, err)
	}
	for text, want := range map[string]string{
		"":                                   "it is empty",
		"{}":                                 "not a profile of an application",
		`{"penstock_application_profile":2}`: "version 2",
		`{"penstock_application_profile":1}`: "0 nodes",
		strings.Replace(head, `"cores":2`, `"cores":-2`, 1): "capacity",
		head + `{"node":1}`: "line 2: node 1: the header has 1 nodes",
		head + "x\n" + two:  "line 2",
		head + two + `{"node":0,"at_ns":5000000000,"cpu_ns":8000000000}`: "line 4: node \"n\": the line is not later",
		head + two + `{"node":0,"at_ns":6000000000}`:                     "a counter decreases",
		head + `{"node":0,"at_ns":-1}`:                                   "negative",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(head + `{"node":0,"at_ns":0}` + "\n" + `{"node":0,"at_ns":5000000000,"cpu_ns":8000000000}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		if p, err := character.New(file.Samples, character.DefaultThresholds); err == nil {
			if s := character.Pair(p, p); !(s.Slowdown >= 1) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// Of a device, either the flow counts or the foreign I/O, and a counter that starts again loses nothing.
func TestMeter(t *testing.T) {
	m := &meter{application: "a"}
	at := time.Unix(1e9, 0)
	doc := func(cpu, flow, foreign int64) *status.Document {
		at = at.Add(5 * time.Second)
		d := &status.Document{Applications: status.Applications{Looked: at, Top: []status.Application{{Name: "a", Processes: 1, CPUNS: cpu, MemoryBytes: 9}}}}
		dev := status.Device{Name: "sda"}
		if flow > 0 {
			dev.Flows = []status.Flow{{Name: "a", ServiceNS: flow, Bytes: status.Pair{Read: flow}, Kinds: []status.Kind{{RemoteBytes: flow}}}}
		}
		dev.ForeignUsers.Top = []status.ForeignUser{{Owner: status.Owner{Application: "a"}, DeviceNS: foreign}, {Owner: status.Owner{Application: "a", Delegated: true}, DeviceNS: 1000}}
		d.Devices = []status.Device{dev}
		return d
	}
	if l, fresh := m.take(doc(100, 0, 10)); l.CPUNS != 0 || l.DeviceNS != 0 || !fresh || l.MemoryBytes != 9 {
		t.Errorf("%+v", l)
	}
	if l, _ := m.take(doc(150, 0, 30)); l.CPUNS != 50 || l.DeviceNS != 20 {
		t.Errorf("%+v", l)
	}
	if l, _ := m.take(doc(20, 5, 70)); l.CPUNS != 70 || l.DeviceNS != 25 || l.ReadBytes != 5 || l.NetworkBytes != 5 {
		t.Errorf("%+v", l)
	}
	d := doc(20, 5, 90)
	d.Applications.Looked = m.looked
	if l, fresh := m.take(d); fresh || l.DeviceNS != 25 {
		t.Errorf("%+v, %v", l, fresh)
	}
}
