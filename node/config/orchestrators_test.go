package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/core/policy"
)

func TestOrchestrators(t *testing.T) {
	name := write(t, "socket: x\norchestrators:\n  kubernetes: {token_file: token, ca: /etc/ca.pem, server_name: worker-1, period: 10s, applications: [\"analytics/*\"]}\n  mesos: {}\n")
	n, err := LoadNode(name)
	if err != nil {
		t.Fatal(err)
	}
	k, m := n.Orchestrators.Kubernetes, n.Orchestrators.Mesos
	if k.URL != "https://127.0.0.1:10250/pods" || k.TokenFile != filepath.Join(filepath.Dir(name), "token") || k.CA != "/etc/ca.pem" || time.Duration(k.Period) != 10*time.Second ||
		k.Resource != "penstock.io/disk-bandwidth" || k.Access().ServerName != "worker-1" || !slices.Equal(k.Applications, []string{"analytics/*"}) {
		t.Errorf("%+v", k)
	}
	if m.URL != "http://127.0.0.1:5051/state" || m.Resource != "disk_bandwidth" || time.Duration(m.Period) != 5*time.Second || !slices.Equal(m.Applications, []string{"*"}) {
		t.Errorf("%+v", m)
	}
	if n, err = LoadNode(write(t, "socket: x\norchestrators: {mesos: {applications: []}}\n")); err != nil || len(n.Orchestrators.Mesos.Applications) != 0 || n.Orchestrators.Kubernetes != nil {
		t.Errorf("%+v, %v", n, err)
	}
	for text, want := range map[string]string{
		"kubernetes: {url: \"http://127.0.0.1:10255/pods\", token_file: t}": "line 3, column 16: orchestrators: url",
		"kubernetes: {url: /pods}":                               "give http://HOST",
		"kubernetes: {period: 999ms}":                            "1s to 5m",
		"kubernetes: {period: 0s}":                               "1s to 5m",
		"kubernetes: {period: 301s}":                             "1s to 5m",
		"kubernetes: {applications: [\"[\"]}":                    "use 1 to 256 bytes",
		"kubernetes: {applications: [\"\"]}":                     "use 1 to 256 bytes",
		"kubernetes: {token: x}":                                 "line 3",
		"kubernetes: {device_plugin: {}}":                        "bandwidth 0: use 1 to 10000",
		"kubernetes: {device_plugin: {bandwidth: 10001}}":        "bandwidth 10001",
		"kubernetes: {device_plugin: {bandwidth: 1, folder: x}}": "absolute path",
		"kubernetes: {device_plugin: {bandwidth: 1, folder: /" + strings.Repeat("x", maxPluginFolder) + "}}": "at most 93 bytes",
		"kubernetes: {resource: cpu, device_plugin: {bandwidth: 1}}":                                         "extended resource",
		"mesos: {url: \"http://10.0.0.1:5051/state\", credential_file: c}":                                   "over https, or to this machine",
		"mesos: {resource: " + strings.Repeat("x", 254) + "}":                                                "at most 253",
		"mesos: {applications: [" + strings.Repeat("a,", 1000) + "a]}":                                       "at most 1000",
		"mesos: {applications: [" + strings.Repeat("a", policy.MaxPattern+1) + "]}":                          "256 bytes",
	} {
		_, err := LoadNode(write(t, "socket: x\norchestrators:\n  "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"kubernetes: {period: 1s}", "kubernetes: {period: 5m}", "kubernetes: {device_plugin: {bandwidth: 1}}",
		"kubernetes: {device_plugin: {bandwidth: 10000, folder: /" + strings.Repeat("x", maxPluginFolder-1) + "}}", "mesos: {resource: " + strings.Repeat("x", 253) + "}",
		"mesos: {applications: [" + strings.Repeat("a,", 999) + "a]}", "mesos: {applications: [" + strings.Repeat("a", policy.MaxPattern) + "]}"} {
		if _, err := LoadNode(write(t, "socket: x\norchestrators:\n  "+text+"\n")); err != nil {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

func TestRequestedBandwidthIsTheWeight(t *testing.T) {
	w, err := LoadWeights(write(t, "rules:\n  - {application: \"spark-*\", bandwidth: true, weight: 3, limit: 10MiB}\n  - {application: \"*\", weight: 9}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const spark = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"
	for requested, want := range map[int64]int{0: 3, 1: 1, 65: 65, maxWeight: maxWeight, maxWeight + 1: maxWeight, -1: 3} {
		if r := w.PolicyWith(spark, map[string]int64{spark: requested, "app-20240102030405-0001": 70}); r.Weight != want || r.Limit != 10<<20 {
			t.Errorf("%d MB/s: %+v, want a weight of %d", requested, r, want)
		}
	}
	if r := w.PolicyWith("app-20240102030405-0001", map[string]int64{"app-20240102030405-0001": 70}); r.Weight != 9 {
		t.Errorf("a rule without bandwidth: %+v", r)
	}
	if w.Policy(spark).Weight != 3 || !w.UsesBandwidth() {
		t.Errorf("%+v", w.Policy(spark))
	}
	w.Rules = w.Rules[1:]
	if w.UsesBandwidth() {
		t.Error("no rule uses bandwidth")
	}
}

func TestWeightsOfOrchestratedApplications(t *testing.T) {
	w, err := LoadWeights(write(t, "rules:\n  - {application: \"kubernetes:analytics/*\", weight: 5}\n  - {application: \"*-0007\", weight: 7}\n  - {application: \"*\", weight: 9}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for flow, want := range map[string]int{"kubernetes:analytics/presto": 5, "5b1c2d3e-1111-4222-8333-444455556666-0007": 7,
		"spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e": 9, "kubernetes:web/nginx": 9, "clients": 1, "spark-x": 1} {
		if got := w.Policy(flow).Weight; got != want {
			t.Errorf("%s: %d, want %d", flow, got, want)
		}
	}
}
