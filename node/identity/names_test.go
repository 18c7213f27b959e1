package identity

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/node/monitor/owner"
)

const (
	appA  = "application_1795320415451_0010"
	appB  = "application_1795320415451_0011"
	contA = "container_1795320415451_0010_01_000002"
	contB = "container_e17_1795320415451_0011_01_000003"
	spark = "app-20260102030405-0000"
)

func TestApplicationOfContainer(t *testing.T) {
	for id, want := range map[string]string{
		contA: appA,
		contB: appB,
		"container_1795320415451_12345_01_000001":   "application_1795320415451_12345",
		"container_179532041545_0010_01_000002":     "", // 12 digits
		"container_20260102030405_0010_01_000002":   "",
		"container_1795320415451_0010_01":           "",
		"container_1795320415451_0010_01_000002_1":  "",
		"container_1795320415451_0010_01_000002 ":   "",
		"container_e_1795320415451_0010_01_000002":  "",
		"container_ex_1795320415451_0010_01_000002": "",
		"xcontainer_1795320415451_0010_01_000002":   "",
		"container_1795320415451_001O_01_000002":    "",
		"container_1795320415451_0010_01_-00002":    "",
		"container_1795320415451_0010_01_000002/..": "",
		"": "",
	} {
		if got := owner.ApplicationOf(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

func TestClasses(t *testing.T) {
	for flow, want := range map[string]class{
		appA: classApplication, spark: classApplication, "clients": classGroup, "unattributed": classGroup,
		"replication": classService, "balancer": classService, "scanner": classService, "reconstruction": classService,
		"application_20260102030405_0001": classOther, "app-2026-0000": classOther, "": classOther, "x": classOther,
	} {
		if got := classOf(flow); got != want {
			t.Errorf("%q: %v, want %v", flow, got, want)
		}
	}
}

func TestContainerOfCgroup(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"v1": {"4:memory:/\n3:cpu,cpuacct:/hadoop-yarn/" + contA + "\n", contA},
		"v2": {"0::/hadoop-yarn/" + contA + "\n", contA},
		// There is a container inside the container, and the NodeManager itself runs in a
		// container.
		"below it":            {"0::/hadoop-yarn/" + contA + "/9f86d081884c\n", contA},
		"the node in one":     {"0::/docker/9f86d081884c/hadoop-yarn/" + contA + "\n", contA},
		"in both hierarchies": {"2:cpu:/hadoop-yarn/" + contA + "\n0::/hadoop-yarn/" + contA + "\n", contA},
		"two at once":         {"2:cpu:/hadoop-yarn/" + contA + "\n0::/hadoop-yarn/" + contB + "\n", ""},
		"another parent":      {"0::/somewhere/" + contA + "\n", ""},
		"not a child":         {"0::/hadoop-yarn/x/" + contA + "\n", ""},
		"part of a name":      {"0::/not-hadoop-yarn/" + contA + "\n", ""},
		"a user's own":        {"0::/user.slice/user-1000.slice/user@1000.service/hadoop-yarn/" + contA + "\n", ""},
		"a user's own, v1":    {"1:name=systemd:/x/user@7.service/hadoop-yarn/" + contA + "\n", ""},
		"colons in the path":  {"0::/a:b/hadoop-yarn/" + contA + "\n", contA},
		"none":                {"9:name=systemd:/\n0::/\n", ""},
		"no line":             {"hadoop-yarn/" + contA, ""},
		"nothing":             {"", ""},
	} {
		if got := containerOfCgroup(c.text, "/hadoop-yarn"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := containerOfCgroup("0::/"+contA+"\n", ""); got != "" {
		t.Errorf("without a parent: %q", got)
	}
	if got := containerOfCgroup("0::/big/yarn/"+contA+"\n", "big/yarn/"); got != contA {
		t.Errorf("a parent of two parts: %q", got)
	}
}

func TestPlaces(t *testing.T) {
	for rel, want := range map[string]place{
		"usercache/ann/appcache/" + appA + "/" + contA:                   {"ann", appA, contA, "usercache/ann/appcache/" + appA + "/" + contA},
		"usercache/ann/appcache/" + appA + "/" + contA + "/launch.sh":    {"ann", appA, contA, "usercache/ann/appcache/" + appA + "/" + contA},
		"usercache/ann/appcache/" + appB + "/" + contA:                   {},
		"usercache/ann/appcache/" + appA:                                 {},
		"usercache/../appcache/" + appA + "/" + contA:                    {},
		"usercache/ann/filecache/" + appA + "/" + contA:                  {},
		"nmPrivate/" + appA + "/" + contA:                                {},
		"usercache/ann/appcache/" + appA + "/" + contA + "_tmp/launcher": {},
	} {
		got, ok := placeOf(rel)
		if got != want || ok != (want != place{}) {
			t.Errorf("%q: %+v, %v", rel, got, ok)
		}
	}
	for rel, want := range map[string]place{
		spark + "/0":      {"", spark, "0", spark + "/0"},
		spark + "/12/x":   {"", spark, "12", spark + "/12"},
		spark:             {},
		spark + "/../0":   {},
		appA + "/0":       {},
		"driver-2026/0":   {},
		spark + "/x":      {},
		spark + "x" + "0": {},
	} {
		got, ok := sparkPlaceOf(rel)
		if got != want || ok != (want != place{}) {
			t.Errorf("%q: %+v, %v", rel, got, ok)
		}
	}
}

// Every id that YARN can make is recognised, wherever it appears.
func TestEveryContainerIsRecognised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		app := rapid.StringMatching(`[0-9]{13}_[0-9]{4,10}`).Draw(t, "application")
		id := "container_" + rapid.SampledFrom([]string{"", "e01_", "e123_"}).Draw(t, "epoch") + app +
			rapid.StringMatching(`_[0-9]{2}_[0-9]{6}`).Draw(t, "rest")
		if owner.ApplicationOf(id) != "application_"+app {
			t.Fatalf("%s: %q", id, owner.ApplicationOf(id))
		}
		if containerOfCgroup("3:cpu:/hadoop-yarn/"+id+"\n", "hadoop-yarn") != id {
			t.Fatal("cgroup")
		}
		if containerOfEnviron([]byte("A=1\x00CONTAINER_ID="+id+"\x00B=2\x00")) != id {
			t.Fatal("environment")
		}
	})
}

func FuzzContainers(f *testing.F) {
	f.Add("0::/hadoop-yarn/" + contA + "\n")
	f.Add("3:cpu:/user.slice/hadoop-yarn/" + contB + "/x\n")
	f.Add("usercache/ann/appcache/" + appA + "/" + contA)
	f.Add("CONTAINER_ID=" + contA + "\x00")
	f.Fuzz(func(t *testing.T, s string) {
		for _, id := range []string{containerOfCgroup(s, "hadoop-yarn"), containerOfEnviron([]byte(s))} {
			if id != "" && (!isYARNApplication(owner.ApplicationOf(id)) || !strings.Contains(s, id)) {
				t.Errorf("%q became %q", s, id)
			}
		}
		if p, ok := placeOf(s); ok && (p.application != owner.ApplicationOf(p.container) || !strings.HasPrefix(s, p.path)) {
			t.Errorf("%q became %+v", s, p)
		}
		if p, ok := sparkPlaceOf(s); ok && (!isSparkApplication(p.application) || !strings.HasPrefix(s, p.path)) {
			t.Errorf("%q became %+v", s, p)
		}
	})
}
