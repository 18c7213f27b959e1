package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"penstock/lab/blkio"
	"penstock/lab/ledger"
	"penstock/node/identity"
	"penstock/node/monitor/owner"
	"penstock/node/status"
)

// The kubelet and the agent of these tests answer with files in the documented form; no Kubernetes and no Mesos
// could be run.

const (
	sparkOnKubernetes = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"
	driverPod         = "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	serverPod         = "33333333-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	framework         = "5b1c2d3e-1111-4222-8333-444455556666-0007"
	podContainer      = "4b1d5c3a7e9f00112233445566778899aabbccddeeff00112233445566778899"
)

func answering(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../wire/orchestrator/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
	t.Cleanup(s.Close)
	return s.URL
}

func TestOwnersOfOrchestrators(t *testing.T) {
	r := startWith(t, "observe", "orchestrators:\n  kubernetes: {url: "+answering(t, "kubelet-pods.json")+"/pods}\n  mesos: {url: "+answering(t, "mesos-agent-state.json")+"/state}\n")
	var doc *status.Document
	r.until("the orchestrators have answered", func() bool {
		doc = r.status()
		return len(doc.Orchestrators) == 2 && !doc.Orchestrators[0].Answered.IsZero() && !doc.Orchestrators[1].Answered.IsZero()
	})
	k, m := doc.Orchestrators[0], doc.Orchestrators[1]
	if k.Kind != "kubernetes" || k.Containers != 5 || k.Error != "" || k.Top[0] != (status.Orchestrated{Name: sparkOnKubernetes, Title: "nightly-etl", Workload: "Spark", OwnFlow: true, Containers: 2, Requested: 65}) {
		t.Errorf("%+v", k)
	}
	if m.Kind != "mesos" || m.Offered != 200 || m.Top[0].Name != framework || m.Top[0].Requested != 45 || m.Top[0].CPUs != 3 || !m.Top[0].OwnFlow {
		t.Errorf("%+v", m)
	}
	if n, fails := r.metric(`penstock_orchestrator_containers{kind="kubernetes"}`), r.metric(`penstock_orchestrator_failures{kind="mesos"}`); n != "5" || fails != "0" {
		t.Errorf("metrics: %s containers, %s failures", n, fails)
	}
	pod := owner.Of("/kubepods/burstable/pod" + driverPod + "/" + podContainer)
	for path, want := range map[string]status.Owner{
		"/kubepods/burstable/pod" + driverPod + "/" + podContainer: {Kind: "kubernetes", ID: podContainer, Application: sparkOnKubernetes, Pod: driverPod, Short: sparkOnKubernetes + " analytics/etl-7f3a91driver 4b1d5c3a7e9f"},
		"/kubepods/pod" + serverPod:                                {Kind: "kubernetes", Application: "kubernetes:hadoop/hdfs-datanode", Pod: serverPod, Short: "kubernetes:hadoop/hdfs-datanode hadoop/hdfs-datanode-k5vqn"},
		"/mesos/" + driverPod:                                      {Kind: "mesos", ID: driverPod, Application: framework, Short: framework + " 0 3f2a91c4-0d5"},
		"/user.slice/kubepods/pod" + driverPod:                     {Kind: "kubernetes", Pod: driverPod, Delegated: true, Short: "pod " + driverPod + " (name not verified)"},
	} {
		if got := namedOwner(r.daemon.orchestrators, owner.Of(path)); got != want {
			t.Errorf("%s:\n%+v, want\n%+v", path, got, want)
		}
	}
	if got := ownerLabel(r.daemon.orchestrators, "", pod); got != sparkOnKubernetes {
		t.Error(got)
	}
	if got := namedOwner(nil, pod); got.Application != "" || !strings.HasPrefix(got.Short, "pod ") {
		t.Errorf("without orchestrators: %+v", got)
	}
	e := evidence{r.daemon.orchestrators}
	if c, known := e.Of(pod); !known || c != (identity.Container{Name: "analytics/etl-7f3a91driver", Application: sparkOnKubernetes}) {
		t.Errorf("%+v, %v", c, known)
	}
	// A DataNode in a pod must not become the client of its own application.
	if c, known := e.Of(owner.Of("/kubepods/pod" + serverPod)); !known || c.Application != "" {
		t.Errorf("%+v, %v", c, known)
	}
	if c, known := e.Of(owner.Of("/kubepods/pod99999999-0d5e-4c1b-9e77-8a6b5c4d3e2f")); known || c.Application != "" {
		t.Errorf("%+v, %v", c, known)
	}
	if c, ok := e.At(netip.MustParseAddr("10.244.1.8")); !ok || c.Application != sparkOnKubernetes {
		t.Errorf("%+v, %v", c, ok)
	}
}

// Without a broker, what an application's containers request on this machine is its weight here.
func TestRequestsAreWeights(t *testing.T) {
	r := startWith(t, "observe", "orchestrators: {kubernetes: {url: "+answering(t, "kubelet-pods.json")+"/pods}}\n")
	weight := func() int {
		r.daemon.mu.Lock()
		defer r.daemon.mu.Unlock()
		return r.daemon.policy()(sparkOnKubernetes).Weight
	}
	if w := weight(); w != 1 {
		t.Errorf("no rule uses bandwidth: weight %d", w)
	}
	r.put(r.weights, "default: 2\nrules: [{application: \"spark-*\", bandwidth: true}]\n")
	r.until("the weight", func() bool { return weight() == 65 })
	r.put(r.weights, "default: 2\n")
	r.until("the default weight", func() bool { return weight() == 2 })
}

// The status says why the device plug-in is not registered; the daemon runs on.
func TestDevicePluginWithoutAKubelet(t *testing.T) {
	r := startWith(t, "observe", "orchestrators: {kubernetes: {url: "+answering(t, "kubelet-pods.json")+"/pods, device_plugin: {bandwidth: 200, folder: ROOT}}}\n")
	var p *status.DevicePlugin
	r.until("the error", func() bool {
		p = r.status().Orchestrators[0].DevicePlugin
		return p.Error != ""
	})
	if p.Offered != 200 || p.Resource != "penstock.io/disk-bandwidth" || !p.Registered.IsZero() || !strings.Contains(p.Error, "kubelet.sock") {
		t.Errorf("%+v", p)
	}
}

func TestNoOrchestrators(t *testing.T) {
	r := start(t, "observe")
	if doc := r.status(); doc.Orchestrators == nil || len(doc.Orchestrators) != 0 || r.daemon.orchestrators != nil {
		t.Errorf("%+v", doc.Orchestrators)
	}
}

// A process in a real cgroup with the name of a pod: the daemon shows its application, accepts what its agent claims,
// and holds it by an entry of processes.
func TestAProcessInAPod(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	path, group := "", (*blkio.Group)(nil)
	for _, name := range []string{fmt.Sprintf("penstock-node-%d", os.Getpid()), "pod" + driverPod, podContainer} {
		path += "/" + name
		if group, err = blkio.Make(book, path); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.Command("sleep", "1000")
	exited, err := book.Spawn(child)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); <-exited })
	if err := os.WriteFile(group.Path+"/cgroup.procs", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}

	r := startWith(t, "enforce", cgroupOnly+"identity: {mode: verify}\norchestrators: {kubernetes: {url: "+answering(t, "kubelet-pods.json")+"/pods}}\n")
	r.put(r.weights, "default: 1\nprocesses:\n  - {name: other, application: \"kubernetes:*/*\", limit: 1MiB}\n  - {name: etl, application: \"spark-*\", limit: 50MiB}\n")
	var found status.ProcessGroup
	r.until("the pod's application", func() bool {
		for _, g := range r.status().Processes.Top {
			if g.Flow == sparkOnKubernetes {
				found = g
				return true
			}
		}
		return false
	})
	if found.Processes != 1 || found.Owner.Pod != driverPod || found.Owner.Application != sparkOnKubernetes {
		t.Errorf("%+v", found)
	}
	var c status.Control
	r.until("the hold", func() bool { c = r.status().Control; return len(c.Holds) == 1 })
	if h := c.Holds[0]; h.Flow != "process:etl" || h.Limit != 50<<20 {
		t.Errorf("%+v", c.Holds)
	}
	if all := r.daemon.heldProcesses(r.daemon.weights); len(all) != 1 || all[0].Cgroup != strings.TrimSuffix(path, "/"+podContainer) {
		t.Errorf("%+v", all)
	}
	if all := r.daemon.containersOf("*", 0); len(all) != 0 {
		t.Errorf("beyond the bound: %v", all)
	}
	if flows := r.daemon.processes.flows(); len(flows) != 1 || flows[child.Process.Pid] != sparkOnKubernetes {
		t.Errorf("processes whose connections may be held: %v", flows)
	}
	pid, uid := int32(child.Process.Pid), uint32(os.Getuid())
	if v := r.daemon.identity.Process(pid, uid, sparkOnKubernetes); v.State != identity.Confirmed || v.Evidence != identity.Cgroup {
		t.Errorf("%+v", v)
	}
	if v := r.daemon.identity.Process(pid, uid, app); v.State != identity.Refuted || v.Flow != sparkOnKubernetes {
		t.Errorf("%+v", v)
	}
	_ = child.Process.Kill()
	<-exited
	r.until("the end of the hold", func() bool { return len(r.status().Control.Holds) == 0 })
}

// A cgroup whose name is no text, as the user of a service with Delegate=yes may make it, does not harm the metrics.
func TestACgroupWithoutAText(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	group, err := blkio.Make(book, fmt.Sprintf("/penstock-%d-\xff.scope", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	exited, err := book.Spawn(child)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); <-exited })
	if err := os.WriteFile(group.Path+"/cgroup.procs", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startWith(t, "observe", "")
	r.until("a look at the processes", func() bool { p := r.status().Processes; return p.Seconds > 0 && p.Error == "" })
	if mode := r.metric("penstock_mode"); mode == "" {
		t.Error("no metrics")
	}
}
