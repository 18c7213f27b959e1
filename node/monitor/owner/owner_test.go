package owner

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	hex64 = "4b1d5c3a7e9f00112233445566778899aabbccddeeff00112233445566778899"
	uid   = "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	yarn  = "container_1700000000000_0001_01_000002"
	app   = "application_1700000000000_0001"
)

func TestOwners(t *testing.T) {
	under := strings.ReplaceAll(uid, "-", "_")
	pod := Owner{Kind: Kubernetes, ID: hex64, Pod: uid}
	for path, want := range map[string]Owner{
		"":  {},
		"/": {},
		// YARN: cgroup v1 and v2 have the same names, below cgroups.hierarchy.
		"/hadoop-yarn/" + yarn:                                    {Kind: YARN, ID: yarn, Application: app},
		"/yarn.slice/hadoop-yarn/" + yarn + "/task":               {Kind: YARN, ID: yarn, Application: app},
		"/hadoop-yarn/container_e17_1700000000000_0001_01_000002": {Kind: YARN, ID: "container_e17_1700000000000_0001_01_000002", Application: app},
		"/hadoop-yarn/container_17":                               {},
		// A NodeManager in a Docker container.
		"/docker/" + hex64 + "/hadoop-yarn/" + yarn: {Kind: YARN, ID: yarn, Application: app, Delegated: true},
		// Mesos, also nested.
		"/mesos/" + uid: {Kind: Mesos, ID: uid},
		"/mesos/" + uid + "/mesos/1d2c3b4a-0000-1111-2222-333344445555": {Kind: Mesos, ID: "1d2c3b4a-0000-1111-2222-333344445555", Delegated: true},
		"/mesos/agent":  {},
		"/other/" + uid: {},
		// Kubernetes, cgroupfs driver: guaranteed, burstable, best effort; below another cgroup.
		"/kubepods/pod" + uid + "/" + hex64:                                     pod,
		"/kubepods/burstable/pod" + uid + "/" + hex64:                           pod,
		"/kubepods/besteffort/pod" + uid:                                        {Kind: Kubernetes, Pod: uid},
		"/kubelet/kubepods/burstable/pod" + uid + "/" + hex64:                   pod,
		"/kubepods/burstable/pod" + strings.Repeat("0123abcd", 4) + "/" + hex64: {Kind: Kubernetes, ID: hex64, Pod: strings.Repeat("0123abcd", 4)},
		// systemd driver: containerd, CRI-O, Docker; CRI-O's own monitor is not in the pod's container.
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + hex64 + ".scope": pod,
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + hex64 + ".scope":                                              pod,
		"/kubepods.slice/kubepods-pod" + under + ".slice/docker-" + hex64 + ".scope/init":                                       pod,
		"/kubepods.slice/kubepods-pod" + under + ".slice":                                                                       {Kind: Kubernetes, Pod: uid},
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice/cri-containerd-" + hex64 + ".scope":      pod,
		"/kubepods.slice/kubepods-burstable.slice":                                                                              {},
		// containerd with names of the systemd driver, without that driver.
		"/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + hex64: pod,
		// A NodeManager in a pod.
		"/kubepods/pod" + uid + "/" + hex64 + "/hadoop-yarn/" + yarn: {Kind: YARN, ID: yarn, Application: app, Delegated: true},
		// Below services that are no runtimes, scopes and LXC, others may have chosen the names of pods and of Mesos.
		"/system.slice/web.service/kubepods/pod" + uid + "/" + hex64:                 {Kind: Kubernetes, ID: hex64, Pod: uid, Delegated: true},
		"/system.slice/web.service/mesos/" + uid:                                     {Kind: Mesos, ID: uid, Delegated: true},
		"/machine.slice/machine-web.scope/kubepods/pod" + uid:                        {Kind: Kubernetes, Pod: uid, Delegated: true},
		"/lxc.payload.web/mesos/" + uid:                                              {Kind: Mesos, ID: uid, Delegated: true},
		"/lxc/web/kubepods/pod" + uid + "/" + hex64:                                  {Kind: Kubernetes, ID: hex64, Pod: uid, Delegated: true},
		"/a.scope/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + hex64: {Kind: Kubernetes, ID: hex64, Pod: uid, Delegated: true},
		"/system.slice/mesos-slave.service/mesos/" + uid:                             {Kind: Mesos, ID: uid},
		"/system.slice/yarn.service/hadoop-yarn/" + yarn:                             {Kind: YARN, ID: yarn, Application: app},
		// Docker and Podman.
		"/docker/" + hex64:                                    {Kind: Docker, ID: hex64},
		"/system.slice/docker-" + hex64 + ".scope":            {Kind: Docker, ID: hex64},
		"/machine.slice/libpod-" + hex64 + ".scope/container": {Kind: Podman, ID: hex64},
		"/libpod_parent/libpod-" + hex64:                      {Kind: Podman, ID: hex64},
		"/machine.slice/libpod-conmon-" + hex64 + ".scope":    {Kind: Unit, ID: "libpod-conmon-" + hex64 + ".scope"},
		"/docker/" + hex64[1:]:                                {},
		"/" + hex64:                                           {},
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + hex64 + ".scope": {Kind: Podman, ID: hex64, Delegated: true},
		// systemd units.
		"/system.slice/fio.service": {Kind: Unit, ID: "fio.service"},
		"/system.slice/system-postgresql.slice/postgresql@16-main.service/child": {Kind: Unit, ID: "postgresql@16-main.service"},
		"/user.slice/user-1000.slice/session-3.scope":                            {Kind: Unit, ID: "session-3.scope", Delegated: true},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/fio.service":    {Kind: Unit, ID: "fio.service", Delegated: true},
		"/init.scope":   {Kind: Unit, ID: "init.scope"},
		"/system.slice": {},
		"/.service":     {},
		`/system.slice/dev-disk-by\x2dlabel.service`: {Kind: Unit, ID: `dev-disk-by\x2dlabel.service`},
		// Users may choose any bytes.
		"/user.slice/user-1000.slice/\xff.scope": {}, "/user.slice/a b.service": {}, "/user.slice/\u00e4.service": {}, "/user.slice/a\x1b[2J.scope": {},
		// A user may name cgroups like YARN's.
		"/user.slice/user-1000.slice/user@1000.service/hadoop-yarn/" + yarn: {Kind: YARN, ID: yarn, Application: app, Delegated: true},
	} {
		if got := Of(path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

func TestCgroupsOfPods(t *testing.T) {
	under := strings.ReplaceAll(uid, "-", "_")
	for path, want := range map[string]string{
		"/kubepods/burstable/pod" + uid + "/" + hex64 + "/x":                                                 "/kubepods/burstable/pod" + uid,
		"/kubepods/pod" + uid:                                                                                "/kubepods/pod" + uid,
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + hex64 + ".scope":                           "/kubepods.slice/kubepods-pod" + under + ".slice",
		"/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + hex64: "/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + hex64,
		"/mesos/" + uid + "/x":                                                                               "/mesos/" + uid,
		"/kubepods/pod" + uid + "/" + hex64 + "/hadoop-yarn/" + yarn:                                         "",
		"/user.slice/kubepods/pod" + uid + "/" + hex64:                                                       "",
		"/docker/" + hex64: "", "/system.slice/fio.service": "", "/": "", "": "", "/mesos/x": "",
	} {
		if got := CgroupOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestLongPathsHaveNoOwner(t *testing.T) {
	end := "/fio.service"
	if got := Of(strings.Repeat("/", maxPath-len(end)) + end); got.ID != "fio.service" {
		t.Errorf("a path of %d bytes: %+v", maxPath, got)
	}
	if got := Of(strings.Repeat("/", maxPath-len(end)+1) + end); got != (Owner{}) {
		t.Errorf("a path of %d bytes: %+v", maxPath+1, got)
	}
}

func TestShortNames(t *testing.T) {
	for path, want := range map[string]string{
		"/":                                 "",
		"/hadoop-yarn/" + yarn:              app + " 000002",
		"/docker/" + hex64:                  "docker 4b1d5c3a7e9f",
		"/kubepods/pod" + uid:               "pod " + uid,
		"/kubepods/pod" + uid + "/" + hex64: "pod " + uid + " 4b1d5c3a7e9f",
		"/mesos/" + uid:                     "mesos 3f2a91c4-0d5",
		"/system.slice/fio.service":         "fio.service",
		"/user.slice/hadoop-yarn/" + yarn:   app + " 000002 (name not verified)",
	} {
		if got := Of(path).String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, seed := range []string{"/hadoop-yarn/" + yarn, "/kubepods/pod" + uid + "/" + hex64, "/a/kubepods-pod" + uid + ".slice:cri-containerd:" + hex64, "/docker/" + hex64, "/user@/x.service", "/\xff.scope"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		o := Of(path)
		if o.Kind == None && o != (Owner{}) {
			t.Errorf("%q: no kind, and %+v", path, o)
		}
		if o.Kind != None && o.ID == "" && o.Pod == "" {
			t.Errorf("%q: %+v has no name", path, o)
		}
		if c := CgroupOf(path); !strings.HasPrefix(path, c) || c != "" && (Of(c).Pod != o.Pod || o.Kind == Mesos && Of(c) != o) {
			t.Errorf("%q: cgroup %q", path, c)
		}
		if !utf8.ValidString(o.String()) {
			t.Errorf("%q: %q is no text", path, o)
		}
		if !strings.Contains(path, o.ID) || o.Kind != None && o.String() == "" {
			t.Errorf("%q: %+v, %q", path, o, o)
		}
	})
}
