package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/wire/jsonstream"
)

// DefaultResource is the extended resource by which pods request bandwidth, in MB/s.
const DefaultResource = "penstock.io/disk-bandwidth"

// Labels that Spark gives to the pods of drivers and executors.
const (
	labelSpark = "spark-app-selector" // the application's id
	labelRole  = "spark-role"         // driver or executor
	labelTitle = "spark-app-name"
	labelHash  = "pod-template-hash" // of a Deployment's pods
	// annotationMirror has the UID that a static pod has in its cgroups. The API server has a mirror of the pod, with
	// a UID of its own. Anybody who may create pods can write this annotation, but the kubelet runs no pod that has it.
	annotationMirror = "kubernetes.io/config.mirror"
)

// Pod is what is read of a pod.
type Pod struct {
	// UID is the pod's, as in the names of its cgroups.
	UID             string
	Namespace, Name string
	// Application is the name of the application: the id of a Spark application, or else
	// kubernetes:NAMESPACE/NAME with the name of the workload, which is the pod's controller (of a Deployment's
	// pods, the Deployment), or the pod itself if it has none.
	Application string
	// Kind is the kind of the workload: Spark, Deployment, StatefulSet, Pod, ...
	Kind string
	// Title is the application's name for people.
	Title string
	// Role is driver or executor; empty: it is no pod of Spark.
	Role    string
	Account string // the service account
	Node    string
	// Addresses are the pod's own; it has none if it uses its machine's network.
	Addresses []netip.Addr
	Labels    []string // label=value, sorted
	Created   time.Time
	Running   bool
	// Ended reports that its containers have ended, and Succeeded that they have ended well. It holds no resources then.
	Ended, Succeeded bool
	// Mirror reports that the pod is the API server's copy of a static pod.
	Mirror bool
	// Bandwidth is what the pod requests, in MB/s; 0: nothing.
	Bandwidth int64
}

// KindSpark is the kind of Spark's applications.
const KindSpark = "Spark"

// Rest is what else a list of pods says.
type Rest struct {
	// Continue asks for the next page; empty: this was the last one.
	Continue string
	// Skipped is the number of pods whose names are invalid.
	Skipped int
}

// staticDigits is the number of hexadecimal digits of a static pod's UID.
const staticDigits = 32

// pod is the part of a v1.Pod that is read.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName           string      `json:"nodeName"`
		ServiceAccountName string      `json:"serviceAccountName"`
		HostNetwork        bool        `json:"hostNetwork"`
		Containers         []container `json:"containers"`
		InitContainers     []container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIP  string `json:"podIP"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	} `json:"status"`
}

type container struct {
	RestartPolicy string `json:"restartPolicy"` // Always: an initial container that runs beside the others
	Resources     struct {
		Requests map[string]quantity `json:"requests"`
	} `json:"resources"`
}

// ReadPods reads a v1.PodList, one pod at a time: the kubelet's /pods, or /api/v1/pods of the API server.
// resource is the name of the extended resource that counts as bandwidth. A pod with invalid names is skipped.
// An error of each ends the list.
func ReadPods(d *json.Decoder, resource string, each func(Pod) error) (rest Rest, err error) {
	kind, message := "", ""
	err = jsonstream.Object(d, func(name string) (bool, error) {
		switch name {
		case "kind":
			return true, d.Decode(&kind)
		case "message":
			return true, d.Decode(&message)
		case "metadata":
			var m struct {
				Continue string `json:"continue"`
			}
			err := d.Decode(&m)
			rest.Continue = m.Continue
			return true, err
		case "items":
			return true, jsonstream.Array(d, func() error {
				var raw json.RawMessage
				if err := d.Decode(&raw); err != nil {
					return err
				}
				if len(raw) > maxObject {
					return fmt.Errorf("a pod of %d bytes: at most %d", len(raw), maxObject)
				}
				var p pod
				if err := json.Unmarshal(raw, &p); err != nil {
					return err
				}
				read, ok := p.read(resource)
				if !ok {
					rest.Skipped++
					return nil
				}
				return each(read)
			})
		}
		return false, nil
	})
	switch {
	case err != nil:
		return Rest{}, err
	case kind == "Status":
		return Rest{}, fmt.Errorf("no list of pods, but the message %.200q", message)
	case kind != "PodList":
		return Rest{}, fmt.Errorf("the kind %.40q instead of PodList: give the address of a list of pods, such as https://127.0.0.1:10250/pods", kind)
	case len(rest.Continue) > maxText*16:
		return Rest{}, errors.New("the name of the next page is too long")
	}
	return rest, nil
}

// read checks a pod; ok is false if its names are invalid.
func (p *pod) read(resource string) (out Pod, ok bool) {
	m := &p.Metadata
	out = Pod{UID: m.UID, Namespace: m.Namespace, Name: m.Name, Account: p.Spec.ServiceAccountName, Node: jsonstream.Clip(p.Spec.NodeName, 253),
		Created: m.CreationTimestamp, Running: p.Status.Phase == "Running", Succeeded: p.Status.Phase == "Succeeded"}
	out.Ended = out.Succeeded || p.Status.Phase == "Failed"
	// A static pod's hash is no UUID, so a mirror cannot take the place of a pod of the API server.
	if hash := m.Annotations[annotationMirror]; isHex(hash, staticDigits) {
		out.UID, out.Mirror = hash, true
	}
	if out.Account != "" && !isName(out.Account) {
		out.Account = ""
	}
	name := ""
	if name, out.Kind = p.workload(); !isLabel(out.Namespace) || !isName(out.Name) || !isName(name) || !isUUID(out.UID) && !isHex(out.UID, staticDigits) {
		return Pod{}, false
	}
	out.Application, out.Title = workload(out.Namespace, name), name
	if id, role := m.Labels[labelSpark], m.Labels[labelRole]; !out.Mirror && IsSparkOnKubernetes(id) && (role == "driver" || role == "executor") {
		out.Application, out.Role, out.Kind = id, role, KindSpark
		if title := m.Labels[labelTitle]; title != "" {
			out.Title = title
		}
	}
	out.Title, out.Kind = jsonstream.Clip(out.Title, maxText), jsonstream.Clip(out.Kind, 63)
	for name, value := range m.Labels {
		out.Labels = append(out.Labels, name+"="+value)
	}
	slices.Sort(out.Labels)
	out.Labels = slices.Clone(out.Labels[:min(len(out.Labels), maxLabels)])
	for i, l := range out.Labels {
		out.Labels[i] = jsonstream.Clip(l, maxText)
	}
	if !p.Spec.HostNetwork && !out.Ended {
		out.Addresses = p.addresses()
	}
	if !out.Ended {
		out.Bandwidth = bandwidth(p.requested(resource))
	}
	return out, true
}

// workload returns the name and the kind of what controls a pod.
func (p *pod) workload() (name, kind string) {
	for _, o := range p.Metadata.OwnerReferences {
		if !o.Controller || o.Kind == "Node" { // the kubelet's copy of a static pod
			continue
		}
		if hash := p.Metadata.Labels[labelHash]; o.Kind == "ReplicaSet" && hash != "" {
			if deployment, ok := strings.CutSuffix(o.Name, "-"+hash); ok && deployment != "" {
				return deployment, "Deployment"
			}
		}
		return o.Name, o.Kind
	}
	return p.Metadata.Name, "Pod"
}

// maxAddresses is the maximum number of addresses of a pod: one of each family.
const maxAddresses = 2

func (p *pod) addresses() (all []netip.Addr) {
	add := func(text string) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsLoopback() || a.IsUnspecified() || len(all) >= maxAddresses {
			return
		}
		if a = a.Unmap().WithZone(""); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	add(p.Status.PodIP)
	for _, ip := range p.Status.PodIPs {
		add(ip.IP)
	}
	return all
}

// requested returns what the pod requests of a resource by the rule of Kubernetes' scheduler: the sum over its
// containers and those initial containers that run beside them, or more if an initial container needs more
// while it runs.
func (p *pod) requested(resource string) float64 {
	beside, most := 0.0, 0.0
	for _, c := range p.Spec.InitContainers {
		q := float64(c.Resources.Requests[resource])
		if c.RestartPolicy == "Always" {
			beside += q
			most = max(most, beside)
			continue
		}
		most = max(most, beside+q)
	}
	sum := beside
	for _, c := range p.Spec.Containers {
		sum += float64(c.Resources.Requests[resource])
	}
	return max(sum, most)
}

// quantity is a resource.Quantity of Kubernetes; 0 if it is invalid or negative.
type quantity float64

// UnmarshalJSON accepts a string, as Kubernetes writes it, or a number.
func (q *quantity) UnmarshalJSON(text []byte) error {
	s := string(text)
	if unquoted, err := strconv.Unquote(s); err == nil {
		s = unquoted
	}
	v, _ := parseQuantity(s)
	*q = quantity(v)
	return nil
}

var suffixes = map[string]float64{"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}

// parseQuantity reads a quantity: a decimal number, and a suffix or an exponent.
func parseQuantity(s string) (float64, bool) {
	const most = 64 // bytes
	if len(s) > most {
		return 0, false
	}
	number := strings.TrimRight(s, "numkKMGTPEi")
	factor, ok := suffixes[s[len(number):]]
	if !ok || number == "" || strings.Trim(number, "0123456789.eE+-") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(number, 64)
	if v *= factor; err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}
