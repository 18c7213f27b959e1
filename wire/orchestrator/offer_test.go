package orchestrator

import (
	"strings"
	"testing"
)

func TestOffers(t *testing.T) {
	steps, err := Offer{"worker-1", DefaultResource, 200}.Kubernetes()
	if err != nil || len(steps) != 3 ||
		steps[0].Command != `kubectl patch node worker-1 --subresource=status --type=json -p '[{"op": "add", "path": "/status/capacity/penstock.io~1disk-bandwidth", "value": "200"}]'` ||
		steps[1].Command != `kubectl get node worker-1 -o jsonpath='{.status.allocatable.penstock\.io/disk-bandwidth}'` ||
		!strings.Contains(steps[2].Command, `"remove"`) {
		t.Errorf("%q, %v", steps, err)
	}
	steps, err = Offer{"", DefaultScalar, MaxBandwidth}.Mesos()
	if err != nil || steps[0].Command != "mesos-agent --resources='disk_bandwidth:1000000'" {
		t.Errorf("%q, %v", steps, err)
	}
	for _, o := range []Offer{{"worker-1", DefaultResource, 0}, {"worker-1", DefaultResource, MaxBandwidth + 1}, {"worker-1", DefaultResource, -1}, {"", DefaultResource, 1},
		{"a;reboot", DefaultResource, 1}, {"a", "cpu", 1}, {"a", "example/x", 1}, {"a", "example.com/", 1}, {"a", "example.com/x'y", 1}, {"a", "example.com/a/b", 1}} {
		if steps, err := o.Kubernetes(); err == nil {
			t.Errorf("%+v: %q", o, steps)
		}
	}
	for _, o := range []Offer{{"", DefaultScalar, 0}, {"", "", 1}, {"", "a'b", 1}, {"", "-a", 1}, {"", "a:b", 1}, {"", strings.Repeat("a", 64), 1}} {
		if steps, err := o.Mesos(); err == nil {
			t.Errorf("%+v: %q", o, steps)
		}
	}
	if _, err := (Offer{"", strings.Repeat("a", 63), 1}).Mesos(); err != nil {
		t.Error(err)
	}
}
