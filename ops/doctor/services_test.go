package doctor

import (
	"strings"
	"testing"

	"penstock/node/status"
)

func TestServices(t *testing.T) {
	hbase := status.Service{Flow: "service:hbase", User: "hbase", Program: "HRegionServer"}
	for _, c := range []struct {
		mode  string
		rules []status.Service
		want  []string
	}{
		{"verify", nil, []string{"ok none in the weights file"}},
		{"verify", []status.Service{hbase, hbase, {Flow: "service:impala", User: "impala"}}, []string{"ok service:hbase, service:impala"}},
		{"trust", []status.Service{hbase}, []string{"warn 1 rules, but identity has mode trust"}},
		{"verify", []status.Service{{Flow: "service:old", User: "*", Client: "hb_rs_*"}, hbase}, []string{`warn service:old: only the client's name "hb_rs_*" counts`, "ok service:old, service:hbase"}},
		{"strict", []status.Service{{Flow: "service:old", User: "*", Client: "hb_rs_*"}}, []string{`warn service:old: only the client's name "hb_rs_*" counts`, "ok service:old"}},
		{"verify", []status.Service{{Flow: "service:trino", User: "*", Program: "TrinoServer"}}, []string{`warn service:trino: the program "TrinoServer" of any user`, "ok service:trino"}},
	} {
		all := checkServices(&Facts{Status: &status.Document{Identity: status.Identity{Mode: c.mode, Services: c.rules}}})
		if len(all) != len(c.want) {
			t.Errorf("%s, %+v: %+v", c.mode, c.rules, all)
			continue
		}
		for i, want := range c.want {
			verdict, found, _ := strings.Cut(want, " ")
			if string(all[i].Verdict) != verdict || !strings.HasPrefix(all[i].Found, found) || (all[i].Remedy == "") != (verdict == "ok") {
				t.Errorf("%s: %+v, want %s", c.mode, all[i], want)
			}
		}
	}
	if all := checkServices(&Facts{}); all != nil {
		t.Errorf("without a daemon: %+v", all)
	}
}
