package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

const spark = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"

// testdata opens an answer in the documented form; see testdata/README.md.
func testdata(t testing.TB, name string) *json.Decoder {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return json.NewDecoder(strings.NewReader(string(text)))
}

func pods(d *json.Decoder) (all []Pod, rest Rest, err error) {
	rest, err = ReadPods(d, DefaultResource, func(p Pod) error {
		all = append(all, p)
		return nil
	})
	return all, rest, err
}

func TestPodsOfAKubelet(t *testing.T) {
	all, rest, err := pods(testdata(t, "kubelet-pods.json"))
	if err != nil || rest != (Rest{}) || len(all) != 6 {
		t.Fatalf("%d pods, %+v, %v", len(all), rest, err)
	}
	for i, want := range []string{
		"3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f analytics " + spark + " Spark nightly-etl driver [10.244.1.7 fd00:10:244:1::7] 5 false",
		"11111111-0d5e-4c1b-9e77-8a6b5c4d3e2f analytics " + spark + " Spark nightly-etl executor [10.244.1.8] 60 false",
		"22222222-0d5e-4c1b-9e77-8a6b5c4d3e2f analytics kubernetes:analytics/presto Deployment presto  [10.244.1.9] 22 false",
		"33333333-0d5e-4c1b-9e77-8a6b5c4d3e2f hadoop kubernetes:hadoop/hdfs-datanode DaemonSet hdfs-datanode  [] 0 false",
		"44444444-0d5e-4c1b-9e77-8a6b5c4d3e2f batch kubernetes:batch/load-29381040 Job load-29381040  [] 0 true",
		"0123abcd0123abcd0123abcd0123abcd kube-system kubernetes:kube-system/kube-proxy-worker-1 Pod kube-proxy-worker-1  [] 0 false",
	} {
		p := all[i]
		if got := fmt.Sprint(p.UID, " ", p.Namespace, " ", p.Application, " ", p.Kind, " ", p.Title, " ", p.Role, " ", p.Addresses, " ", p.Bandwidth, " ", p.Ended); got != want {
			t.Errorf("pod %d:\n%s, want\n%s", i, got, want)
		}
		if !IsApplication(p.Application) {
			t.Errorf("%q is not the name of an application", p.Application)
		}
	}
	if p := all[0]; p.Account != "spark" || p.Node != "worker-1" || !p.Running || p.Labels[0] != "io.weight=4" || len(p.Labels) != 5 || p.Created.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestFrameworksOfAnAgent(t *testing.T) {
	var all []Framework
	a, err := ReadAgent(testdata(t, "mesos-agent-state.json"), DefaultScalar, func(f Framework) error {
		all = append(all, f)
		return nil
	})
	if err != nil || len(all) != 2 || a != (Agent{"5b1c2d3e-1111-4222-8333-444455556666-S0", "agent-1", Resources{16, 63000, 200}, 0}) {
		t.Fatalf("%+v, %+v, %v", all, a, err)
	}
	f, g := all[0], all[1]
	if f.ID != "5b1c2d3e-1111-4222-8333-444455556666-0007" || f.Name != "WordCount" || f.User != "ann" || f.Role != "analytics/etl" ||
		len(f.Executors) != 1 || f.Executors[0] != (Executor{"0", "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f", Resources{3, 2432, 45}, 1}) {
		t.Errorf("%+v", f)
	}
	if g.Role != "" || len(g.Executors) != 1 || g.Executors[0].Resources != (Resources{3, 2432, 0}) || !IsApplication(g.ID) {
		t.Errorf("%+v", g)
	}
	if _, err := ReadAgent(testdata(t, "kubelet-pods.json"), DefaultScalar, nil); err == nil || !strings.Contains(err.Error(), "/state") {
		t.Errorf("pods instead of a state: %v", err)
	}
}

func TestFrameworksOfAMaster(t *testing.T) {
	var all []Framework
	skipped, err := ReadFrameworks(testdata(t, "mesos-master-frameworks.json"), DefaultScalar, func(f Framework) error {
		all = append(all, f)
		return nil
	})
	if err != nil || skipped != 0 || len(all) != 2 {
		t.Fatalf("%+v, %d, %v", all, skipped, err)
	}
	if f := all[0]; f.Used != (Resources{6, 4864, 90}) || !f.Active || f.Registered != 1795000090.25 || f.Tasks != 1 || len(f.Executors) != 0 {
		t.Errorf("%+v", f)
	}
	if f := all[1]; f.Active || f.Used.Bandwidth != 0 || f.User != "bob" {
		t.Errorf("%+v", f)
	}
	if _, err := ReadFrameworks(json.NewDecoder(strings.NewReader("{}")), "", nil); err == nil {
		t.Error("no error without frameworks")
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 253)
	for name, is := range map[string]bool{
		spark: true, spark + "0": false, "spark-5B9C1f0e2d3a4b5c8d7e6f1a2b3c4d5e": false, "spark-": false,
		"spark-application-1546031781274": true, "spark-application-154603178127": false,
		"kubernetes:a/b": true, "kubernetes:a/b.c-d": true, "kubernetes:a": false, "kubernetes:/b": false, "kubernetes:a/": false, "kubernetes:a/b/c": false,
		"kubernetes:a.b/c": false, "kubernetes:a/B": false, "kubernetes:a/-b": false, "kubernetes:a/b~": false, "kubernetes:a/" + long: false,
		"kubernetes:" + strings.Repeat("a", 63) + "/b": true, "kubernetes:" + strings.Repeat("a", 64) + "/b": false,
		"5b1c2d3e-1111-4222-8333-444455556666-0007": true, "5b1c2d3e-1111-4222-8333-444455556666-007": false, "5b1c2d3e-1111-4222-8333-444455556666-S0": false,
		"5b1c2d3e-1111-4222-8333-444455556666-1234567890": true, "5b1c2d3e-1111-4222-8333-444455556666-12345678901": false,
		"5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001": true, "5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001-retry-1": true,
		"5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405": false, "5b1c2d3e-1111-4222-8333-444455556666-0007-driver-2026010203040-0001": false,
		"5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-001": false, "5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001-retry-": false,
		"5b1c2d3e-1111-4222-8333-444455556666-0007-driver-": false, "5b1c2d3e-1111-4222-8333-444455556666-driver-20260102030405-0001": false,
		"5b1c2d3e-1111-4222-8333-444455556666-": false, "5b1c2d3e-1111-4222-8333-444455556666": false, "5b1c2d3e-1111-4222-8333-444455556666-0007-x": false,
		"clients": false, "": false, "application_1700000000000_0001": false,
	} {
		if IsApplication(name) != is {
			t.Errorf("%q: %v", name, !is)
		}
	}
	// Long names are shortened, and stay different.
	a, b := workload(strings.Repeat("a", 63), long), workload(strings.Repeat("a", 63), long[1:])
	if a == b || len(a) > MaxName || !IsWorkload(a) || !IsWorkload(b) {
		t.Errorf("%q and %q", a, b)
	}
	fits := strings.Repeat("n", MaxName-len("kubernetes:a/"))
	if w := workload("a", fits); w != "kubernetes:a/"+fits {
		t.Errorf("%q", w)
	}
	if w := workload("a", fits+"n"); len(w) != MaxName || !strings.Contains(w, "~") {
		t.Errorf("%q", w)
	}
	if QueueOf("") != "mesos" || QueueOf("a/b") != "mesos.a.b" {
		t.Error(QueueOf("a/b"))
	}
}

func TestQuantities(t *testing.T) {
	for s, want := range map[string]float64{"60": 60, "0": 0, "1k": 1000, "1Ki": 1024, "2M": 2e6, "1e3": 1000, "1E3": 1000, "1E": 1e18, "500m": 0.5, "+7": 7, "1.5": 1.5, "2Gi": 2 << 30} {
		if got, ok := parseQuantity(s); !ok || got != want {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "k", "-1", "1kk", "1K", "0x10", "Inf", "NaN", "1 k", "1e999", "1_0", strings.Repeat("1", 65)} {
		if got, ok := parseQuantity(s); ok || got != 0 {
			t.Errorf("%q: %v", s, got)
		}
	}
	for amount, want := range map[float64]int64{0: 0, -1: 0, 0.1: 1, 1.4: 1, 1.5: 2, MaxBandwidth: MaxBandwidth, 1e300: MaxBandwidth} {
		if got := bandwidth(amount); got != want {
			t.Errorf("%v: %d, want %d", amount, got, want)
		}
	}
}

// Names that Kubernetes would not accept, and owners that are no controllers.
func TestOddPods(t *testing.T) {
	one := func(metadata string) (Pod, bool) {
		t.Helper()
		all, rest, err := pods(json.NewDecoder(strings.NewReader(`{"kind":"PodList","items":[{"metadata":` + metadata + `}]}`)))
		if err != nil || len(all)+rest.Skipped != 1 {
			t.Fatalf("%s: %v, %+v", metadata, err, rest)
		}
		if rest.Skipped == 1 {
			return Pod{}, false
		}
		return all[0], true
	}
	const uid = `"uid":"3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"`
	for metadata, want := range map[string]string{
		`{"name":"a","namespace":"b",` + uid + `}`: "kubernetes:b/a",
		`{"name":"a","namespace":"b",` + uid + `,"ownerReferences":[{"kind":"X","name":"no"},{"kind":"Y","name":"y","controller":true}]}`: "kubernetes:b/y",
		`{"name":"a","namespace":"b",` + uid + `,"ownerReferences":[{"kind":"Node","name":"n","controller":true}]}`:                       "kubernetes:b/a",
		`{"name":"a","namespace":"b",` + uid + `,"ownerReferences":[{"kind":"ReplicaSet","name":"r-1","controller":true}]}`:               "kubernetes:b/r-1",
		// Labels of Spark with an id that is none, or with another role.
		`{"name":"a","namespace":"b",` + uid + `,"labels":{"spark-app-selector":"application_1700000000000_0001","spark-role":"driver"}}`: "kubernetes:b/a",
		`{"name":"a","namespace":"b",` + uid + `,"labels":{"spark-app-selector":"` + spark + `","spark-role":"x"}}`:                       "kubernetes:b/a",
		`{"name":"A","namespace":"b",` + uid + `}`:   "",
		`{"name":"a/b","namespace":"b",` + uid + `}`: "",
		`{"name":"a","namespace":"",` + uid + `}`:    "",
		`{"name":"a","namespace":"b","uid":"../x"}`:  "",
		`{"name":"a","namespace":"b"}`:               "",
		`null`:                                       "",
	} {
		p, ok := one(metadata)
		if ok != (want != "") || p.Application != want {
			t.Errorf("%s: %q, want %q", metadata, p.Application, want)
		}
	}
}

// The annotations of a pod are chosen by its creator, so no pod can take another pod's UID by them, or lose its own.
func TestUIDs(t *testing.T) {
	const own, other, hash = "3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f", "11111111-0d5e-4c1b-9e77-8a6b5c4d3e2f", "0123abcd0123abcd0123abcd0123abcd"
	for annotations, want := range map[string]string{
		`{}`: own, `{"kubernetes.io/config.hash":"` + other + `"}`: own, `{"kubernetes.io/config.hash":"` + hash + `"}`: own,
		`{"kubernetes.io/config.mirror":"` + other + `"}`: own, `{"kubernetes.io/config.mirror":""}`: own,
		`{"kubernetes.io/config.hash":"` + hash + `","kubernetes.io/config.mirror":"` + hash + `","kubernetes.io/config.source":"file"}`: hash,
	} {
		all, _, err := pods(json.NewDecoder(strings.NewReader(`{"kind":"PodList","items":[{"metadata":{"name":"a","namespace":"b","uid":"` + own +
			`","labels":{"spark-app-selector":"` + spark + `","spark-role":"driver"},"annotations":` + annotations + `}}]}`)))
		if err != nil || len(all) != 1 || all[0].UID != want {
			t.Errorf("%s: %+v, %v", annotations, all, err)
			continue
		}
		// The static pods of a machine are no executors, whatever their copies' labels are.
		if mirror := want == hash; all[0].Mirror != mirror || (all[0].Application == spark) == mirror {
			t.Errorf("%s: %+v", annotations, all[0])
		}
	}
}

func TestListsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"Status","message":"pods is forbidden"}`: "pods is forbidden",
		`{"kind":"NodeList","items":[]}`:                  "NodeList",
		`{}`:                                              "instead of PodList",
		`[]`:                                              "expected an object",
		`{"kind":"PodList","items":[`:                     "EOF",
		`{"kind":"PodList","items":[{"spec":7}]}`:                                 "cannot unmarshal",
		`{"kind":"PodList","items":["` + strings.Repeat("x", maxObject-1) + `"]}`: "at most",
	} {
		if _, _, err := pods(json.NewDecoder(strings.NewReader(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	// A pod of the largest length is read.
	text := `{"kind":"PodList","items":[{"x":"` + strings.Repeat("x", maxObject-len(`{"x":""}`)) + `"}]}`
	if _, rest, err := pods(json.NewDecoder(strings.NewReader(text))); err != nil || rest.Skipped != 1 {
		t.Errorf("a pod of %d bytes: %v", maxObject, err)
	}
	stop := errors.New("stop")
	n := 0
	_, err := ReadPods(testdata(t, "kubelet-pods.json"), "", func(Pod) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d pods after an error: %v", n, err)
	}
}

// The bounds of a framework hold while its lists are read, not afterwards.
func TestLargeFrameworks(t *testing.T) {
	read := func(list, element string, n int) (f Framework, err error) {
		text := `{"frameworks":[{"id":"5b1c2d3e-1111-4222-8333-444455556666-0007","` + list + `":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}]}`
		_, err = ReadFrameworks(json.NewDecoder(strings.NewReader(text)), DefaultScalar, func(g Framework) error { f = g; return nil })
		return f, err
	}
	if f, err := read("tasks", `{"state":"TASK_RUNNING"}`, 1000); err != nil || f.Tasks != 1000 {
		t.Errorf("%d tasks, %v", f.Tasks, err)
	}
	for list, most := range map[string]int{"tasks": maxTasks, "executors": maxExecutors} {
		if _, err := read(list, "{}", most); err != nil {
			t.Errorf("%d %s: %v", most, list, err)
		}
		if _, err := read(list, "{}", most+1); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%d %s: %v", most+1, list, err)
		}
	}
	if _, err := read("executors", "null", 3); err != nil {
		t.Error(err)
	}
	if _, err := read("executors", "7", 1); err == nil {
		t.Error("a number as an executor")
	}
}

func FuzzPods(f *testing.F) {
	text, err := os.ReadFile("testdata/kubelet-pods.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"kind":"PodList","metadata":{"continue":"x"},"items":null}`))
	f.Add([]byte(`{"kind":"PodList","items":[{"metadata":{"name":"a","namespace":"b","uid":"0123abcd0123abcd0123abcd0123abcd"},"spec":{"containers":[{"resources":{"requests":{"penstock.io/disk-bandwidth":7}}}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _, _ := pods(json.NewDecoder(strings.NewReader(string(text))))
		for _, p := range all {
			if !IsApplication(p.Application) || len(p.Title) > maxText || len(p.Labels) > maxLabels || len(p.Addresses) > maxAddresses || p.Bandwidth < 0 || p.Bandwidth > MaxBandwidth || p.Ended && p.Bandwidth > 0 {
				t.Fatalf("%+v", p)
			}
		}
	})
}

func FuzzMesos(f *testing.F) {
	for _, name := range []string{"mesos-agent-state.json", "mesos-master-frameworks.json"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		check := func(g Framework) error {
			if !IsFramework(g.ID) || len(g.Name)+len(g.User)+len(g.Role) > 3*maxText || g.Used.Bandwidth < 0 || g.Used.Bandwidth > MaxBandwidth || g.Registered < 0 {
				t.Fatalf("%+v", g)
			}
			for _, e := range g.Executors {
				if !isUUID(e.Container) || e.Resources.Memory < 0 || e.Resources.CPUs < 0 {
					t.Fatalf("%+v", e)
				}
			}
			return nil
		}
		_, _ = ReadAgent(json.NewDecoder(strings.NewReader(string(text))), DefaultScalar, check)
		_, _ = ReadFrameworks(json.NewDecoder(strings.NewReader(string(text))), DefaultScalar, check)
	})
}
