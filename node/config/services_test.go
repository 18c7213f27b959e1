package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/node/identity"
)

func TestServices(t *testing.T) {
	w, err := LoadWeights(write(t, `
services:
  - {name: hbase, user: hbase, program: HRegionServer}
  - {name: hbase, user: hbase, program: HMaster}
  - {name: old, user: "*", client: "hb_rs_*"}
rules:
  - {flow: "service:hbase", weight: 20}
`))
	if err != nil {
		t.Fatal(err)
	}
	rules := w.IdentityRules()
	if len(rules) != 3 || rules[0] != (identity.Rule{Name: "hbase", User: "hbase", Program: "HRegionServer"}) || rules[2] != (identity.Rule{Name: "old", User: "*", Client: "hb_rs_*"}) {
		t.Errorf("%+v", rules)
	}
	if got := w.Policy(identity.NamedFlow + "hbase").Weight; got != 20 {
		t.Errorf("weight %d, want 20", got)
	}
	many := func(n int) string {
		return "services: [" + strings.Repeat("{name: a, user: b}, ", n-1) + "{name: a, user: c}]"
	}
	for text, want := range map[string]string{
		"services:\n  - {user: hbase}":                                                    `line 2, column 5: service 1: name "": give 1 to 64`,
		"services:\n  - {name: a b, user: hbase}":                                         `line 2, column 6: service 1: name "a b": use letters, digits`,
		"services:\n  - {name: hbase}":                                                    `line 2, column 5: service 1: give user, the name of the user that the service runs as, or "*"`,
		"services:\n  - {name: hbase, user: '*'}":                                         `line 2, column 19: service 1: user "*" alone would match every process`,
		"services:\n  - {name: hbase, user: hbase/host@REALM}":                            `give the user's short name, "hbase"`,
		"services:\n  - {name: hbase, user: 'hb*'}":                                       `give one user's name, or "*" for any user`,
		"services:\n  - {name: hbase, user: hbase, program: '['}":                         `service 1: program: pattern "[": use at most 256 bytes`,
		"services:\n  - {name: hbase, user: hbase, client: '" + many(20) + "[' }":         `service 1: client: pattern`,
		"services:\n  - {name: hbase, user: hbase, command: x}":                           `command`,
		"services:\n  - {name: a, user: b, client: c}\n  - {name: d, user: b, client: c}": `line 3, column 5: service 2: the entry on line 2 has the same conditions`,
		many(MaxServices + 1):                                                             `257 services: use at most 256`,
	} {
		if _, err := LoadWeights(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v; want an error with %q", text, err, want)
		}
	}
}

func FuzzServices(f *testing.F) {
	f.Add("services: [{name: a, user: b, program: 'c*', client: d}, {name: a, user: '*', program: x}]")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "w.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := LoadWeights(name)
		if err != nil {
			return
		}
		for _, r := range w.IdentityRules() {
			if r.Name == "" || r.User == "" || r.User == identity.AnyUser && r.Program == "" && r.Client == "" {
				t.Errorf("%q: %+v", text, r)
			}
		}
	})
}

func TestHiddenServices(t *testing.T) {
	w, err := LoadWeights(write(t, `
services:
  - {name: hbase, user: hbase, program: HRegionServer}
  - {name: hbase, user: hbase}
  - {name: master, user: hbase, program: HMaster}
  - {name: trino, user: "*", program: TrinoServer}
  - {name: query, user: ann, program: TrinoServer, client: q}
  - {name: other, user: bob, client: q}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := w.Warnings()
	if len(got) != 2 || !strings.Contains(got[0], "line 5, column 5: service master: the entry on line 4 matches everything") ||
		!strings.Contains(got[1], "line 7, column 5: service query: the entry on line 6") {
		t.Errorf("%q", got)
	}
}
