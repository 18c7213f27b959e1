package doctor

import (
	"strings"
	"testing"
	"time"

	"penstock/node/status"
)

func TestOrchestrators(t *testing.T) {
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	for want, o := range map[string]status.Orchestrator{
		"warn has never answered: 401":                             {Error: "401", Failures: 1},
		"warn has not answered since 2026-11-20T08:00:00Z: 401":    {Error: "401", Answered: at},
		"warn 3 containers are beyond the bound of 4096":           {Answered: at, Containers: 4096, LeftOut: 3},
		"warn 2 entries have invalid names":                        {Answered: at, Containers: 1, Skipped: 2},
		"ok kubernetes, http://x/pods: 5 containers of 3 applicat": {Answered: at, Containers: 5, Top: make([]status.Orchestrated, 2), LeftOff: 1},
	} {
		o.Kind, o.URL = "kubernetes", "http://x/pods"
		all := checkOrchestrators(&Facts{Status: &status.Document{Orchestrators: []status.Orchestrator{o}}})
		verdict, found, _ := strings.Cut(want, " ")
		if len(all) != 1 || string(all[0].Verdict) != verdict || !strings.Contains(all[0].Found, found) || (all[0].Remedy == "") != (verdict == "ok") {
			t.Errorf("%s: %+v", want, all)
		}
	}
	for want, p := range map[string]status.DevicePlugin{
		"x/y is not offered: no socket": {Error: "no socket"}, "the kubelet does not follow it": {Registered: at}, "": {Registered: at, Watched: 1},
	} {
		p.Resource = "x/y"
		all := checkOrchestrators(&Facts{Status: &status.Document{Orchestrators: []status.Orchestrator{{Answered: at, DevicePlugin: &p}}}})
		if (want == "") != (len(all) == 1) || want != "" && (all[0].Verdict != Warn || !strings.Contains(all[0].Found, want)) {
			t.Errorf("%s: %+v", want, all)
		}
	}
	if all := checkOrchestrators(&Facts{}); all != nil {
		t.Errorf("without a daemon: %+v", all)
	}
	if all := checkOrchestrators(&Facts{Status: &status.Document{}}); len(all) != 1 || all[0].Verdict != OK {
		t.Errorf("without orchestrators: %+v", all)
	}
}
