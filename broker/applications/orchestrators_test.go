package applications

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"penstock/core/policy"
	"penstock/wire/orchestrator"
)

// The answers in these tests have the documented form of the real ones; no Kubernetes and no Mesos could be run.

const sparkOnKubernetes = "spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e"

// answerOf returns an answer of wire/orchestrator/testdata.
func answerOf(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../wire/orchestrator/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// apiServer answers with the pods of testdata, one on each page.
func apiServer(t *testing.T, more ...string) (address string, pages *atomic.Int32) {
	t.Helper()
	var doc struct{ Items []json.RawMessage }
	if err := json.Unmarshal(answerOf(t, "kubelet-pods.json"), &doc); err != nil {
		t.Fatal(err)
	}
	for _, pod := range more {
		doc.Items = append(doc.Items, json.RawMessage(pod))
	}
	pages = &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/pods" || q.Get("limit") != "500" {
			http.NotFound(w, r)
			return
		}
		pages.Add(1)
		at := 0
		_, _ = fmt.Sscanf(q.Get("continue"), "page %d", &at)
		for ; q.Get("labelSelector") == SparkPods && at < len(doc.Items) && !strings.Contains(string(doc.Items[at]), `"spark-app-selector"`); at++ {
		}
		next, items := "", doc.Items[at:min(at+1, len(doc.Items))]
		if at+1 < len(doc.Items) {
			next = fmt.Sprintf("page %d", at+1)
		}
		text, err := json.Marshal(map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1", "continue": next}, "items": items})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	return s.URL, pages
}

func TestFactsOfKubernetes(t *testing.T) {
	address, pages := apiServer(t)
	d, _ := directory(t, Options{Kubernetes: Kubernetes{URLs: []string{address}}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	if pages.Load() != 6 || len(d.apps) != 4 { // a Job has ended
		t.Errorf("%d pages, %d applications: %+v", pages.Load(), len(d.apps), d.List())
	}
	f := d.Facts(sparkOnKubernetes)
	if f.Queue != "kubernetes.analytics" || f.Name != "nightly-etl" || f.Type != "SPARK" || f.User != "system:serviceaccount:analytics:spark" || f.Bandwidth != 65 || !slices.Contains(f.Tags, "io.weight=4") {
		t.Errorf("%+v", f)
	}
	if a := d.apps[sparkOnKubernetes]; a.State != "RUNNING" || a.Tasks != 1 || a.Submitted == 0 || a.Progress >= 0 || a.Ended {
		t.Errorf("%+v", a.Application)
	}
	if f := d.Facts("kubernetes:analytics/presto"); f.Bandwidth != 22 || f.Type != "KUBERNETES" || f.Name != "presto" {
		t.Errorf("%+v", f)
	}
	// What a pod requests is its weight, or its guaranteed rate, as with YARN.
	p := &policy.Policy{Default: 1, Rules: []policy.Rule{{Queue: "kubernetes.*", Type: "SPARK", Weight: 1, Bandwidth: policy.BandwidthWeight}, {Queue: "kubernetes.*", Weight: 3, Bandwidth: policy.BandwidthReserve}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if g := p.Grant(d.Facts(sparkOnKubernetes)); g.Weight != 65 {
		t.Errorf("%+v", g)
	}
	if g := p.Grant(d.Facts("kubernetes:analytics/presto")); g.Weight != 3 || g.Total.Reserve != 22_000_000 {
		t.Errorf("%+v", g)
	}
	// Only Spark's pods are read.
	d, _ = directory(t, Options{Kubernetes: Kubernetes{URLs: []string{address}, Pods: SparkPods, Resource: "example.com/other"}})
	if err := list(t, d); err != "" || len(d.apps) != 1 || d.Facts(sparkOnKubernetes).Bandwidth != 0 {
		t.Errorf("%s, %+v", err, d.List())
	}
}

// A pod of another namespace that carries a Spark application's labels adds nothing to it.
func TestBorrowedLabels(t *testing.T) {
	pod := func(namespace, created, role, phase string) string {
		return fmt.Sprintf(`{"metadata":{"name":"p%s","namespace":%q,"uid":"55555555-0d5e-4c1b-9e77-8a6b5c4d3e2f","creationTimestamp":%q,"labels":{"spark-app-selector":%q,"spark-role":%q}},
 "spec":{"containers":[{"resources":{"requests":{"penstock.io/disk-bandwidth":"900"}}}]},"status":{"phase":%q}}`, role, namespace, created, sparkOnKubernetes, role, phase)
	}
	for _, later := range []string{pod("other", "2026-11-20T08:00:01Z", "driver", "Running"), pod("other", "2026-11-20T09:00:00Z", "executor", "Running")} {
		address, _ := apiServer(t, later)
		d, log := directory(t, Options{Kubernetes: Kubernetes{URLs: []string{address}, Pods: SparkPods}})
		for range 2 {
			if err := list(t, d); err != "" {
				t.Fatal(err)
			}
		}
		if f := d.Facts(sparkOnKubernetes); f.Bandwidth != 65 || f.Queue != "kubernetes.analytics" || strings.Count(log.String(), "several namespaces") != 1 {
			t.Errorf("%+v\n%s", f, log)
		}
	}
	// The application ends with its driver, although executors are still there.
	all := podSums{}
	read := func(text string) {
		_, err := orchestrator.ReadPods(json.NewDecoder(strings.NewReader(`{"kind":"PodList","items":[`+text+`]}`)), orchestrator.DefaultResource, func(p orchestrator.Pod) error { return all.add(&p) })
		if err != nil {
			t.Fatal(err)
		}
	}
	read(pod("a", "2026-11-20T08:00:00Z", "executor", "Running"))
	s, _ := all.sum(sparkOnKubernetes)
	if a := s.application(sparkOnKubernetes); a.Ended || a.Bandwidth != 900 || a.State != "RUNNING" {
		t.Errorf("%+v", a)
	}
	read(pod("a", "2026-11-20T08:00:01Z", "driver", "Failed"))
	if a := s.application(sparkOnKubernetes); !a.Ended || a.Succeeded || a.Bandwidth != 0 {
		t.Errorf("%+v", a)
	}
	// The namespace in which it began may be the last one of many.
	for i := range 20 {
		read(pod(fmt.Sprintf("b%d", i), "2026-11-20T08:00:00Z", "executor", "Running"))
	}
	read(pod("z", "2026-11-20T07:59:59Z", "driver", "Running"))
	read(pod("z", "2026-11-20T08:00:01Z", "executor", "Running"))
	if s, others := all.sum(sparkOnKubernetes); s.namespace != "z" || s.bandwidth != 1800 || !others {
		t.Errorf("%+v, %v", s, others)
	}
}

func TestTagsHaveABound(t *testing.T) {
	half := strings.Repeat("a", maxTags/2)
	if got := tags([]string{half, half}); len(got) != 2 {
		t.Errorf("%d labels of together %d bytes", len(got), maxTags)
	}
	if got := tags([]string{half, half, "b"}); len(got) != 2 {
		t.Errorf("%d labels of over %d bytes", len(got), maxTags)
	}
}

func TestFactsOfMesos(t *testing.T) {
	leads := &atomic.Int32{} // the leading master
	var urls []string
	for i := range 2 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case int(leads.Load()) != i:
				w.Header().Set("Location", "//"+strings.TrimPrefix(urls[leads.Load()], "http://")+r.URL.Path)
				w.WriteHeader(http.StatusTemporaryRedirect)
			case r.URL.Path != "/master/frameworks":
				http.NotFound(w, r)
			default:
				_, _ = w.Write(answerOf(t, "mesos-master-frameworks.json"))
			}
		}))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	d, _ := directory(t, Options{Mesos: Mesos{URLs: urls}})
	for leader := range 2 {
		leads.Store(int32(leader))
		if err := list(t, d); err != "" {
			t.Fatal(err)
		}
		f := d.Facts("5b1c2d3e-1111-4222-8333-444455556666-0007")
		if f.Queue != "mesos.analytics.etl" || f.Name != "WordCount" || f.User != "ann" || f.Type != "MESOS" || f.Bandwidth != 90 || len(d.apps) != 2 {
			t.Errorf("%+v", f)
		}
		// A new leader may know less than is used, for a while.
		if settling := !d.sources[0].settledAt.IsZero(); settling != (leader == 1) {
			t.Errorf("leader %d: settling %v", leader, settling)
		}
	}
}

func TestAccessToOrchestrators(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(s.Close)
	d, _ := directory(t, Options{Kubernetes: Kubernetes{URLs: []string{s.URL}}})
	if err := list(t, d); !strings.Contains(err, "list pods") {
		t.Error(err)
	}
	d, _ = directory(t, Options{Mesos: Mesos{URLs: []string{s.URL}, Access: orchestrator.Access{CredentialFile: filepath.Join(t.TempDir(), "none")}}})
	if err := list(t, d); !strings.Contains(err, "no such file") {
		t.Error(err)
	}
	gone := httptest.NewServer(http.HandlerFunc(http.NotFound))
	gone.Close()
	d, _ = directory(t, Options{Kubernetes: Kubernetes{URLs: []string{gone.URL + "?token=secret"}}})
	if err := list(t, d); !strings.Contains(err, "refused") || !strings.Contains(err, strings.TrimPrefix(gone.URL, "http://")) || strings.Contains(err, "secret") {
		t.Errorf("the error names the server, and not the query: %s", err)
	}
	nothing := httptest.NewServer(http.HandlerFunc(http.NotFound))
	t.Cleanup(nothing.Close)
	for want, o := range map[string]Options{
		"is this the API server": {Kubernetes: Kubernetes{URLs: []string{nothing.URL}}}, "is this a Mesos master": {Mesos: Mesos{URLs: []string{nothing.URL}}},
	} {
		d, _ := directory(t, o)
		if err := list(t, d); !strings.Contains(err, want) {
			t.Errorf("%s: %s", want, err)
		}
	}
	for want, o := range map[string]Options{
		"over https only":  {Kubernetes: Kubernetes{URLs: []string{s.URL}, Access: orchestrator.Access{TokenFile: "x"}}},
		"no such file":     {Kubernetes: Kubernetes{URLs: []string{"https://a"}, Access: orchestrator.Access{CA: filepath.Join(t.TempDir(), "none")}}},
		"give http://host": {Mesos: Mesos{URLs: []string{"a"}}},
		"has a password":   {Kubernetes: Kubernetes{URLs: []string{"https://ann:secret@a"}}},
		"cannot be read":   {Kubernetes: Kubernetes{URLs: []string{"https://ann:secret@a:x"}}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
