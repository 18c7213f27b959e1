package orchestrator

import (
	"fmt"
	"strings"
)

// Offer is bandwidth that a machine offers to an orchestrator.
type Offer struct {
	Node      string // the machine's name in Kubernetes
	Resource  string // the extended resource, or the scalar of Mesos
	Bandwidth int64  // MB/s, 1 to MaxBandwidth
}

// Step is a command line for an operator, and what it does.
type Step struct{ Purpose, Command string }

// Kubernetes returns the commands by which an operator offers the bandwidth as an extended resource of a node, checks
// that, and withdraws it. A node's status keeps the resource until the node is registered again.
func (o Offer) Kubernetes() ([]Step, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	domain, name, ok := strings.Cut(o.Resource, "/")
	if !isName(o.Node) {
		return nil, fmt.Errorf("node %.60q: give its name in Kubernetes, as `kubectl get nodes` shows it", o.Node)
	}
	if !ok || !isName(domain) || !strings.Contains(domain, ".") || !isResource(name, "-_.") {
		return nil, fmt.Errorf("resource %.60q: give the name of an extended resource, such as %s", o.Resource, DefaultResource)
	}
	at := "/status/capacity/" + domain + "~1" + name
	patch := func(operation string) string {
		return fmt.Sprintf("kubectl patch node %s --subresource=status --type=json -p '[%s]'", o.Node, operation)
	}
	return []Step{
		{fmt.Sprintf("offer %d MB/s on node %s", o.Bandwidth, o.Node), patch(fmt.Sprintf(`{"op": "add", "path": %q, "value": "%d"}`, at, o.Bandwidth))},
		{"show what can be allocated", fmt.Sprintf("kubectl get node %s -o jsonpath='{.status.allocatable.%s/%s}'", o.Node, strings.ReplaceAll(domain, ".", `\.`), strings.ReplaceAll(name, ".", `\.`))},
		{"withdraw the offer", patch(fmt.Sprintf(`{"op": "remove", "path": %q}`, at))},
	}, nil
}

// Mesos returns the option by which a Mesos agent offers the bandwidth. The agent detects its other resources.
func (o Offer) Mesos() ([]Step, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if !isResource(o.Resource, "-_") {
		return nil, fmt.Errorf("resource %.60q: give the name of a scalar resource, such as %s", o.Resource, DefaultScalar)
	}
	return []Step{{fmt.Sprintf("offer %d MB/s: add this option to the agent, and restart it", o.Bandwidth), fmt.Sprintf("mesos-agent --resources='%s:%d'", o.Resource, o.Bandwidth)}}, nil
}

func (o Offer) check() error {
	if o.Bandwidth < 1 || o.Bandwidth > MaxBandwidth {
		return fmt.Errorf("bandwidth %d: use 1 to %d MB/s", o.Bandwidth, MaxBandwidth)
	}
	return nil
}

// isResource reports whether s consists of letters, digits and the given other characters, and begins with a letter or
// a digit.
func isResource(s, others string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 63 && strings.Trim(s, letters+others) == "" && strings.Contains(letters, s[:1])
}
