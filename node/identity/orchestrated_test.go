package identity

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"penstock/node/monitor/owner"
)

const (
	podUID    = "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	otherUID  = "11111111-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	serverUID = "33333333-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	hex64     = "4b1d5c3a7e9f00112233445566778899aabbccddeeff00112233445566778899"
	sparkPod  = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"
	framework = "5b1c2d3e-1111-4222-8333-444455556666-0007"
)

// containers is what the orchestrators of a made-up machine report, by UID or UUID.
type containers map[string]Container

func (all containers) Of(o owner.Owner) (Container, bool) {
	key := o.Pod
	if o.Kind == owner.Mesos {
		key = o.ID
	}
	c, known := all[key]
	return c, known
}

func (all containers) At(a netip.Addr) (Container, bool) {
	c, known := all[a.String()]
	return c, known
}

var orchestra = containers{podUID: {"analytics/driver", sparkPod}, serverUID: {"hadoop/hdfs-datanode-k5vqn", ""}, otherUID: {"0", framework}, "10.244.1.8": {"analytics/exec-1", sparkPod}, "10.244.1.9": {"web/nginx", ""}}

func TestContainersOfOrchestrators(t *testing.T) {
	for text, want := range map[string]string{
		"0::/kubepods/burstable/pod" + podUID + "/" + hex64 + "\n":                                                                   podUID,
		"0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice/cri-containerd-" + hex64:                  podUID,
		"0::/system.slice/containerd.service/kubepods-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice:cri-containerd:" + hex64: podUID,
		"3:cpu:/mesos/" + otherUID + "\n2:blkio:/mesos/" + otherUID + "\n1:name=systemd:/x\n":                                        otherUID,
		"3:cpu:/mesos/" + otherUID + "\n2:blkio:/mesos/" + podUID + "\n":                                                             "",
		"3:cpu:/mesos/" + otherUID + "\n2:blkio:/kubepods/pod" + podUID + "/" + hex64 + "\n":                                         "",
		// Root of a container chooses the names below its cgroup, and does not leave the container by them.
		"0::/kubepods/pod" + podUID + "/" + hex64 + "/system.slice/web.service":                         podUID,
		"0::/kubepods/pod" + podUID + "/" + hex64 + "/docker/" + hex64:                                  podUID,
		"0::/kubepods/pod" + podUID + "/" + hex64 + "/kubepods/pod" + otherUID + "/" + hex64:            podUID,
		"0::/kubepods/pod" + podUID + "/" + hex64 + "/user.slice/a":                                     podUID,
		"0::/kubepods/pod" + podUID + "/" + hex64 + "/mesos/" + otherUID:                                podUID,
		"0::/mesos/" + otherUID + "/mesos/" + podUID:                                                    otherUID,
		"0::/" + strings.Repeat("a/", maxDepth-2) + "kubepods/pod" + podUID:                             podUID,
		"0::/" + strings.Repeat("a/", maxDepth-1) + "kubepods/pod" + podUID:                             "",
		"3:cpu:/kubepods/pod" + podUID + "/" + hex64 + "\n2:blkio:/kubepods/pod" + podUID + "/" + hex64: podUID,
		// Somebody else may have chosen these names.
		"0::/machine.slice/machine-web.scope/kubepods/pod" + podUID + "/" + hex64:              "",
		"0::/lxc.payload.web/kubepods/pod" + podUID + "/" + hex64:                              "",
		"0::/lxc/web/mesos/" + otherUID:                                                        "",
		"0::/hadoop-yarn/" + contA + "/kubepods/pod" + podUID + "/" + hex64:                    "",
		"0::/machine.slice/libpod-" + hex64 + ".scope/kubepods/pod" + podUID + "/" + hex64:     "",
		"0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod" + podUID + "/" + hex64: "",
		"0::/docker/" + hex64 + "/kubepods/pod" + podUID + "/" + hex64:                         "",
		"0::/system.slice/web.service/kubepods/pod" + podUID + "/" + hex64:                     "",
		"0::/system.slice/web.service/mesos/" + otherUID:                                       "",
		"0::/docker/" + hex64: "", "0::kubepods/pod" + podUID + "/" + hex64: "", "": "",
	} {
		o := orchestrated(text)
		if got := o.Pod; got != want && o.ID != want || want == "" && o.Kind != owner.None {
			t.Errorf("%q: %+v, want %q", text, o, want)
		}
	}
}

func TestContainersForLimits(t *testing.T) {
	w := newWorld(t)
	c := New(w.settings())
	defer c.Close()
	for pid, one := range map[int][2]string{
		10: {"0::/kubepods/pod" + podUID + "/" + hex64 + "\n", "pod " + podUID},
		11: {"0::/kubepods/pod" + podUID + "\n", "pod " + podUID},
		12: {"0::/mesos/" + otherUID + "\n", "mesos " + otherUID},
		13: {"0::/hadoop-yarn/" + contA + "\n", contA},
		14: {"0::/kubepods/pod" + podUID + "/" + hex64 + "/hadoop-yarn/" + contA + "\n", contA},
		15: {"0::/user.slice/kubepods/pod" + podUID + "/" + hex64 + "\n", ""},
		16: {"0::/docker/" + hex64 + "\n", ""},
	} {
		w.start(process{pid: pid, uid: me, cgroup: one[0]})
		if got := c.Container(int32(pid)); got != one[1] {
			t.Errorf("%s: %q, want %q", one[0], got, one[1])
		}
	}
}

func TestProcessesInPods(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	pod := func(uid string) string { return "0::/kubepods/burstable/pod" + uid + "/" + hex64 + "\n" }
	in := w.inspector(nil)
	in.containers = orchestra
	look := func(p process) Peer {
		t.Helper()
		w.start(p)
		peer, err := in.inspect(context.Background(), p.pid, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return peer
	}
	want(t, look(process{pid: 200, uid: me, cgroup: pod(podUID)}), sparkPod, Cgroup)
	want(t, look(process{pid: 201, uid: me, cgroup: "2:blkio:/mesos/" + otherUID + "\n"}), framework, Cgroup)
	// Nothing that a pod does to the cgroups below its own makes it another application, or none.
	want(t, look(process{pid: 206, uid: me, cgroup: "0::/kubepods/pod" + podUID + "/" + hex64 + "/hadoop-yarn/" + contA + "\n"}), sparkPod, Cgroup)
	want(t, look(process{pid: 207, uid: me, cgroup: "0::/kubepods/pod" + podUID + "/" + hex64 + "/docker/" + hex64 + "\n"}), sparkPod, Cgroup)
	want(t, look(process{pid: 208, uid: me, cgroup: "0::/kubepods/pod" + serverUID + "/" + hex64 + "/hadoop-yarn/" + contA + "\n"}), appA, Cgroup)
	// A pod that is no application, such as a NodeManager's; and a container of YARN in it.
	want(t, look(process{pid: 202, uid: me, cgroup: pod(serverUID)}), "", NoEvidence)
	want(t, look(process{pid: 203, session: 100, uid: me, cgroup: pod(serverUID)}), appA, Session)
	// A pod that the kubelet has not reported yet may be an application's.
	p := look(process{pid: 204, uid: me, cgroup: pod("99999999-0d5e-4c1b-9e77-8a6b5c4d3e2f")})
	if p.Outside || p.Application != "" || !strings.Contains(p.Detail, "not known to its orchestrator") {
		t.Errorf("%+v", p)
	}
	// Without an orchestrator, a pod is no container of an application.
	in.containers = nil
	want(t, look(process{pid: 205, uid: me, cgroup: pod(podUID)}), "", NoEvidence)
}

func TestPeersWithPodsAddresses(t *testing.T) {
	w := newWorld(t)
	s := w.settings()
	s.Containers = orchestra
	c := New(s)
	defer c.Close()
	check := func(flow, client string) Verdict {
		t.Helper()
		done := make(chan Verdict, 1)
		v, ok := c.Check(Claim{Flow: flow, Client: client, Server: "192.0.2.11:9866"}, func(v Verdict) { done <- v })
		if !ok {
			v = <-done
		}
		return v
	}
	for _, one := range []struct {
		flow, client string
		state        State
		is           string // the flow in mode verify
	}{
		{sparkPod, "10.244.1.8:40000", Confirmed, sparkPod},
		{"clients", "10.244.1.8:40001", Corrected, sparkPod},
		{"unattributed", "/10.244.1.8:40002", Corrected, sparkPod},
		{appA, "10.244.1.8:40003", Refuted, Unattributed},
		{"replication", "10.244.1.8:40004", Refuted, Unattributed},
		// Another pod, and an address that no pod has: nothing is known.
		{"clients", "10.244.1.9:40000", Unknown, "clients"},
		{sparkPod, "10.244.1.9:40001", Unknown, sparkPod},
		{sparkPod, "10.244.2.8:40000", Unknown, sparkPod},
	} {
		v := check(one.flow, one.client)
		if v.State != one.state || Verify.Flow(one.flow, v) != one.is || v.User != "" || one.state != Unknown && v.Evidence != Address {
			t.Errorf("%+v: %+v", one, v)
		}
	}
}
