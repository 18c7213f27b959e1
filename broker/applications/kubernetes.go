package applications

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"penstock/broker/kerberos"
	"penstock/core/policy"
	"penstock/wire/orchestrator"
)

// Kubernetes says how the API server of Kubernetes is asked for pods.
type Kubernetes struct {
	URLs   []string // base URLs of its API servers; empty: there is no Kubernetes
	Access orchestrator.Access
	// Pods is a label selector for the pods that are read; empty: all pods of the cluster.
	Pods string
	// Resource is the extended resource whose requested amount is an application's bandwidth, in MB/s; empty:
	// orchestrator.DefaultResource.
	Resource string
}

// SparkPods is the label selector of the pods of Spark's applications.
const SparkPods = "spark-app-selector"

const (
	podsPerPage = 500
	maxPods     = 200_000
	maxWarned   = 1000
	// kubernetesType is the type of applications that are not Spark's.
	kubernetesType = "KUBERNETES"
	// executorRole is the role of a pod that runs tasks.
	executorRole = "executor"
)

// kubernetes reads the pods of a cluster and adds them up by application (orchestrator.Pod).
//
// Whoever may create pods in a namespace chooses their labels. So if pods of several namespaces name the same
// application, only those of the namespace count in which it began.
type kubernetes struct {
	*servers
	log      *slog.Logger
	selector string
	resource string
	warned   map[string]bool // applications that several namespaces name; at most maxWarned
}

func (k Kubernetes) addTo(d *Directory) error {
	if len(k.URLs) == 0 {
		return nil
	}
	s, err := newServers(k.URLs, kerberos.Access{})
	if err == nil {
		err = s.use(k.Access)
	}
	if err != nil {
		return err
	}
	d.sources = append(d.sources, &source{clusterManager: &kubernetes{servers: s, log: d.log, warned: map[string]bool{}, selector: k.Pods, resource: cmp.Or(k.Resource, orchestrator.DefaultResource)}})
	return nil
}

func (*kubernetes) name() string { return "Kubernetes" }

func (*kubernetes) owns(flow string) bool {
	return orchestrator.IsSparkOnKubernetes(flow) || orchestrator.IsWorkload(flow)
}

func (k *kubernetes) list(ctx context.Context, add func(Application)) error {
	k.freshConnection()
	all := podSums{}
	next, count := "", 0
	for pages := 0; ; pages++ {
		if pages == maxPages {
			return fmt.Errorf("more than %d pages of pods: read fewer pods (--kubernetes-pods)", maxPages)
		}
		query := url.Values{"limit": {strconv.Itoa(podsPerPage)}}
		if k.selector != "" {
			query.Set("labelSelector", k.selector)
		}
		if next != "" {
			query.Set("continue", next)
		}
		var page []orchestrator.Pod
		var rest orchestrator.Rest
		err := k.get(ctx, "/api/v1/pods", query, func(d *json.Decoder) (err error) {
			page = page[:0]
			rest, err = orchestrator.ReadPods(d, k.resource, func(p orchestrator.Pod) error {
				if count+len(page) >= maxPods {
					return fmt.Errorf("more than %d pods: read fewer pods (--kubernetes-pods)", maxPods)
				}
				p.Labels = tags(p.Labels)
				page = append(page, p)
				return nil
			})
			return err
		})
		if errors.Is(err, errNotFound) {
			return errors.New("404: there is no list of pods: is this the API server of Kubernetes (--kubernetes)?")
		}
		if err != nil {
			return err
		}
		count += len(page)
		for i := range page {
			if err := all.add(&page[i]); err != nil {
				return err
			}
		}
		if next = rest.Continue; next == "" {
			break
		}
	}
	for _, flow := range all.flows() {
		sum, others := all.sum(flow)
		if others && !k.warned[flow] && len(k.warned) < maxWarned {
			k.warned[flow] = true
			k.log.Warn("application directory: pods of several namespaces name the same Spark application; only those of the namespace count in which it began", "application", flow, "namespace", sum.namespace)
		}
		add(sum.application(flow))
	}
	return nil
}

// podSum adds up the pods of an application in a namespace.
type podSum struct {
	namespace     string
	first         orchestrator.Pod // the driver, or else the oldest pod
	created       time.Time        // of the oldest pod
	bandwidth     int64
	running       int // pods
	executors     int // running executors
	left          int // pods that have not ended
	failed        bool
	driver, spark bool
}

// podSums are the sums by application and namespace. No namespace is left out: the one that counts may be the last
// one in the list.
type podSums map[string]map[string]*podSum

func (all podSums) add(p *orchestrator.Pod) error {
	of := all[p.Application]
	if of == nil {
		if len(all) >= MaxApplications {
			return fmt.Errorf("more than %d applications: read fewer pods (--kubernetes-pods)", MaxApplications)
		}
		of = map[string]*podSum{}
		all[p.Application] = of
	}
	s := of[p.Namespace]
	if s == nil {
		s = &podSum{namespace: p.Namespace, first: *p, created: p.Created}
		of[p.Namespace] = s
	}
	driver := p.Role == "driver"
	if driver && !s.driver || driver == s.driver && p.Created.Before(s.first.Created) {
		s.first = *p
	}
	if p.Created.Before(s.created) {
		s.created = p.Created
	}
	s.driver, s.spark = s.driver || driver, s.spark || p.Role != ""
	s.bandwidth += p.Bandwidth
	if p.Running {
		s.running++
		if p.Role == executorRole {
			s.executors++
		}
	}
	if !p.Ended {
		s.left++
	}
	s.failed = s.failed || p.Ended && !p.Succeeded
	return nil
}

func (all podSums) flows() []string {
	flows := make([]string, 0, len(all))
	for flow := range all {
		flows = append(flows, flow)
	}
	slices.Sort(flows)
	return flows
}

// sum returns the sum of the namespace in which an application began; others reports that there are pods of
// other namespaces.
func (all podSums) sum(flow string) (s *podSum, others bool) {
	of := all[flow]
	return slices.MinFunc(slices.Collect(maps.Values(of)), func(a, b *podSum) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.namespace, b.namespace))
	}), len(of) > 1
}

// application returns the facts. A Spark application ends with its driver; another one, when all its pods have
// ended.
func (s *podSum) application(flow string) Application {
	a := Application{Progress: -1, Submitted: max(s.created.UnixMilli(), 0), Tasks: min(s.running, maxTasks), State: "PENDING", Ended: s.left == 0,
		Facts: policy.Facts{Flow: flow, Queue: "kubernetes." + s.namespace, Name: s.first.Title, Type: kubernetesType, Bandwidth: min(s.bandwidth, policy.MaxWeight)}}
	succeeded := !s.failed
	if s.spark {
		a.Type, a.Tasks = sparkType, min(s.executors, maxTasks)
		if s.driver {
			a.Ended, succeeded = s.first.Ended, s.first.Succeeded
		}
	}
	switch {
	case a.Ended:
		a.State, a.Bandwidth, a.Succeeded = "ENDED", 0, succeeded
	case s.running > 0:
		a.State = "RUNNING"
	}
	if s.first.Account != "" {
		a.User = "system:serviceaccount:" + s.namespace + ":" + s.first.Account
	}
	a.Tags = s.first.Labels
	return a
}

// tags returns the first labels, together at most maxTags bytes.
func tags(labels []string) []string {
	left := maxTags
	for i, label := range labels {
		if left -= len(label); left < 0 {
			return slices.Clone(labels[:i]) // the others are not kept
		}
	}
	return labels
}
