package node

import (
	"log/slog"
	"reflect"
	"testing"

	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/node/config"
	"penstock/node/coordination"
	"penstock/node/device"
)

// TestRightsStandOverTheWeightsFile: the weight comes from the cluster's policy, the limit is the
// lower of the two, and the mode comes from the file.
func TestRightsStandOverTheWeightsFile(t *testing.T) {
	d := &Daemon{weights: &config.Weights{Default: 5, Rules: []config.Rule{{Flow: "a", Weight: 7, Mode: "observe", Limit: 1 << 20}, {Flow: "b", Weight: 3, Mode: "enforce"}}}}
	etl := []sfq.Level{{Name: "root", Weight: 2}, {Name: "root.etl", Weight: 3}}
	for name, test := range map[string]struct {
		right coordination.Right
		flow  string
		want  device.Rule
	}{
		"a weight":                  {coordination.Right{Weight: 2.4}, "a", device.Rule{Weight: 2, Mode: device.Observe, Limit: 1 << 20}},
		"a lower limit":             {coordination.Right{Weight: 1, Limit: 1 << 19}, "a", device.Rule{Weight: 1, Mode: device.Observe, Limit: 1 << 19}},
		"a higher limit":            {coordination.Right{Weight: 1, Limit: 1 << 21}, "a", device.Rule{Weight: 1, Mode: device.Observe, Limit: 1 << 20}},
		"a limit below the least":   {coordination.Right{Weight: 1, Limit: 1}, "b", device.Rule{Weight: 1, Mode: device.Enforce, Limit: device.MinLimit}},
		"next to no weight":         {coordination.Right{Weight: 0.01}, "b", device.Rule{Weight: 1, Mode: device.Enforce}},
		"more than a weight may be": {coordination.Right{Weight: 1e9}, "b", device.Rule{Weight: 1_000_000, Mode: device.Enforce}},
		"a reserve":                 {coordination.Right{Weight: 1, Reserve: reserve.Rate{Part: 0.4, Strict: true}}, "b", device.Rule{Weight: 1, Mode: device.Enforce, Reserve: reserve.Rate{Part: 0.4, Strict: true}}},
		"in queues":                 {coordination.Right{Weight: 4, Queues: etl}, "b", device.Rule{Weight: 4, Mode: device.Enforce, Queue: device.NewQueue(etl)}},
		"in none":                   {coordination.Right{Weight: 4}, "b", device.Rule{Weight: 4, Mode: device.Enforce}},
		"another flow":              {coordination.Right{Weight: 9}, "c", device.Rule{Weight: 5, Mode: device.Enforce}},
	} {
		owner := test.flow
		if owner == "c" {
			owner = "somebody"
		}
		d.setRights(map[string]coordination.Right{owner: test.right})
		_, policy := d.rules()
		if got := policy(test.flow); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	d.setRights(nil)
	if _, policy := d.rules(); policy("b").Weight != 3 {
		t.Error("without rights the file's weight does not hold")
	}
}

// TestTheWeakerModeApplies: the cluster's policy can weaken the node's mode, and not strengthen it.
func TestTheWeakerModeApplies(t *testing.T) {
	for _, test := range []struct {
		own        string
		most, want device.Mode
		killed     bool
	}{
		{own: "enforce", most: device.Enforce, want: device.Enforce},
		{own: "enforce", most: device.Observe, want: device.Observe},
		{own: "enforce", most: device.Off, want: device.Off},
		{own: "observe", most: device.Enforce, want: device.Observe},
		{own: "off", most: device.Enforce, want: device.Off},
		{own: "enforce", most: device.Enforce, killed: true, want: device.Off},
	} {
		d := &Daemon{settings: &config.Node{Mode: test.own}, weights: &config.Weights{Default: 1}, killed: test.killed, log: slog.New(slog.DiscardHandler)}
		d.setBound(test.most)
		if got := d.currentMode(); got != test.want {
			t.Errorf("own mode %s, at most %v: %v, not %v", test.own, test.most, got, test.want)
		}
	}
}
