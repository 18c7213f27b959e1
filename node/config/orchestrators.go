package config

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"penstock/core/policy"
	"penstock/node/deviceplugin"
	"penstock/settings"
	"penstock/wire/orchestrator"
)

// Orchestrators says how the kubelet and the Mesos agent of this machine are asked which applications its
// containers belong to. Without it, only the names in the cgroups' paths are known.
type Orchestrators struct {
	Kubernetes *Kubernetes `yaml:"kubernetes"`
	Mesos      *Mesos      `yaml:"mesos"`
}

// Kubernetes says how the kubelet of this machine is asked for its pods.
type Kubernetes struct {
	// URL is that of the list of pods; default https://127.0.0.1:10250/pods. With the API server, it must select
	// the pods of this node: https://HOST:6443/api/v1/pods?fieldSelector=spec.nodeName=NODE.
	URL string `yaml:"url"`
	// CA is a PEM file with the authority of the server's certificate; ServerName is the name in the certificate, if
	// it is not that of the URL.
	CA         string `yaml:"ca"`
	ServerName string `yaml:"server_name"`
	// TokenFile has the token of a service account that may read the pods.
	TokenFile string `yaml:"token_file"`
	// Period is the time between two requests, 1s to 5m; default 5s.
	Period settings.Duration `yaml:"period"`
	// Resource is the extended resource that counts as bandwidth; default penstock.io/disk-bandwidth.
	Resource string `yaml:"resource"`
	// Applications are patterns for NAMESPACE/NAME of workloads that are applications with flows of their own.
	// Spark's applications always are.
	Applications []string `yaml:"applications"`
	// DevicePlugin offers this machine's disk bandwidth to the kubelet. Without it, somebody else has to offer it, or nobody
	// can request it.
	DevicePlugin *DevicePlugin `yaml:"device_plugin"`
}

// DevicePlugin is an offer of disk bandwidth to the kubelet (package node/deviceplugin).
type DevicePlugin struct {
	// Bandwidth is the offer in MB/s, 1 to 10,000.
	Bandwidth int `yaml:"bandwidth"`
	// Folder is the kubelet's folder of device plug-ins; default /var/lib/kubelet/device-plugins.
	Folder string `yaml:"folder"`
}

// Mesos says how the agent of this machine is asked for its containers.
type Mesos struct {
	// URL is that of the agent's state; default http://127.0.0.1:5051/state.
	URL string `yaml:"url"`
	// CA and ServerName are as in Kubernetes.
	CA         string `yaml:"ca"`
	ServerName string `yaml:"server_name"`
	// CredentialFile has a principal and its secret, separated by a space.
	CredentialFile string `yaml:"credential_file"`
	// Period is the time between two requests, 1s to 5m; default 5s.
	Period settings.Duration `yaml:"period"`
	// Resource is the scalar resource that counts as bandwidth; default disk_bandwidth.
	Resource string `yaml:"resource"`
	// Applications are patterns for the names of frameworks that are applications with flows of their own; default
	// all.
	Applications []string `yaml:"applications"`
}

const (
	minPoll          = time.Second
	maxPoll          = 5 * time.Minute
	defaultPoll      = 5 * time.Second
	maxWorkloads     = 1000 // patterns of applications
	defaultPodsURL   = "https://127.0.0.1:10250/pods"
	defaultStateURL  = "http://127.0.0.1:5051/state"
	maxResourceBytes = 253
	// maxPluginFolder leaves room for the names of sockets in it.
	maxPluginFolder = maxSocketPath - len("/penstock.sock")
)

// Access returns how the server is asked.
func (k *Kubernetes) Access() orchestrator.Access {
	return orchestrator.Access{CA: k.CA, ServerName: k.ServerName, TokenFile: k.TokenFile}
}

// Access returns how the server is asked.
func (m *Mesos) Access() orchestrator.Access {
	return orchestrator.Access{CA: m.CA, ServerName: m.ServerName, CredentialFile: m.CredentialFile}
}

// validateOrchestrators fills in the defaults and adds mistakes to those in doc.
func (n *Node) validateOrchestrators() {
	o := n.Orchestrators
	if o == nil {
		return
	}
	if k := o.Kubernetes; k != nil {
		k.URL, k.Resource = cmp.Or(k.URL, defaultPodsURL), cmp.Or(k.Resource, orchestrator.DefaultResource)
		n.beside(&k.CA, &k.TokenFile)
		n.validateSource("kubernetes", k.URL, k.Resource, k.Access(), &k.Period, k.Applications)
		n.validateDevicePlugin(k)
	}
	if m := o.Mesos; m != nil {
		m.URL, m.Resource = cmp.Or(m.URL, defaultStateURL), cmp.Or(m.Resource, orchestrator.DefaultScalar)
		n.beside(&m.CA, &m.CredentialFile)
		if !n.doc.Has("orchestrators", "mesos", "applications") {
			m.Applications = []string{"*"}
		}
		n.validateSource("mesos", m.URL, m.Resource, m.Access(), &m.Period, m.Applications)
	}
}

func (n *Node) validateDevicePlugin(k *Kubernetes) {
	p := k.DevicePlugin
	if p == nil {
		return
	}
	fail := func(err error, field ...any) {
		n.doc.Add("orchestrators: ", err, append([]any{"orchestrators", "kubernetes", "device_plugin"}, field...)...)
	}
	if p.Bandwidth < 1 || p.Bandwidth > deviceplugin.MaxBandwidth {
		fail(fmt.Errorf("bandwidth %d: use 1 to %d MB/s", p.Bandwidth, deviceplugin.MaxBandwidth), "bandwidth")
	}
	if p.Folder = cmp.Or(p.Folder, deviceplugin.DefaultFolder); !filepath.IsAbs(p.Folder) || len(p.Folder) > maxPluginFolder {
		fail(fmt.Errorf("folder %.120q: give an absolute path of at most %d bytes", p.Folder, maxPluginFolder), "folder")
	}
	if _, err := (orchestrator.Offer{Node: "any", Resource: k.Resource, Bandwidth: 1}).Kubernetes(); err != nil {
		fail(err)
	}
}

// beside makes relative paths relative to the settings file.
func (n *Node) beside(paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(n.base, *p)
		}
	}
}

func (n *Node) validateSource(kind, url, resource string, access orchestrator.Access, period *settings.Duration, applications []string) {
	fail := func(err error, field ...any) {
		n.doc.Add("orchestrators: ", err, append([]any{"orchestrators", kind}, field...)...)
	}
	if err := access.CheckURL(url); err != nil {
		fail(fmt.Errorf("url: %w", err), "url")
	}
	if !n.doc.Has("orchestrators", kind, "period") {
		*period = settings.Duration(defaultPoll)
	}
	if p := time.Duration(*period); p < minPoll || p > maxPoll {
		fail(fmt.Errorf("period %v: use 1s to 5m", p), "period")
	}
	if len(resource) > maxResourceBytes {
		fail(fmt.Errorf("resource: use at most %d bytes", maxResourceBytes), "resource")
	}
	if len(applications) > maxWorkloads {
		fail(fmt.Errorf("%d applications: use at most %d patterns", len(applications), maxWorkloads), "applications")
	}
	for i, pattern := range applications {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > policy.MaxPattern {
			fail(fmt.Errorf("applications: pattern %.60q: use 1 to %d bytes, with * ? and [abc]", pattern, policy.MaxPattern), "applications", i)
		}
	}
}
