package applications

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"penstock/broker/kerberos"
	"penstock/core/policy"
	"penstock/wire/orchestrator"
)

// Mesos says how the masters of Mesos are asked for frameworks.
type Mesos struct {
	URLs   []string // base URLs of all masters; empty: there is no Mesos
	Access orchestrator.Access
	// Resource is the scalar resource whose used amount is an application's bandwidth, in MB/s; empty:
	// orchestrator.DefaultScalar.
	Resource string
}

// mesosType is the type of Mesos' frameworks: a master does not know which of them are Spark's.
const mesosType = "MESOS"

// mesos reads the frameworks of the leading master. A master that does not lead redirects to the leader.
type mesos struct {
	*servers
	scalar string
}

func (m Mesos) addTo(d *Directory) error {
	if len(m.URLs) == 0 {
		return nil
	}
	s, err := newServers(m.URLs, kerberos.Access{})
	if err == nil {
		err = s.use(m.Access)
	}
	if err != nil {
		return err
	}
	d.sources = append(d.sources, &source{clusterManager: &mesos{s, cmp.Or(m.Resource, orchestrator.DefaultScalar)}})
	return nil
}

func (*mesos) name() string { return "Mesos" }

func (*mesos) owns(flow string) bool { return orchestrator.IsFramework(flow) }

func (m *mesos) list(ctx context.Context, add func(Application)) error {
	m.freshConnection()
	var all []orchestrator.Framework
	err := m.get(ctx, "/master/frameworks", nil, func(d *json.Decoder) error {
		all = all[:0]
		_, err := orchestrator.ReadFrameworks(d, m.scalar, func(f orchestrator.Framework) error {
			if len(all) == MaxApplications {
				return fmt.Errorf("more than %d frameworks", MaxApplications)
			}
			all = append(all, f)
			return nil
		})
		return err
	})
	if errors.Is(err, errNotFound) {
		return errors.New("404: there is no list of frameworks: is this a Mesos master (--mesos-master)?")
	}
	if err != nil {
		return err
	}
	// A new leader learns from the agents what runs, and knows less until then.
	leader := int64(m.active.Load()) + 1
	for _, f := range all {
		add(Application{Progress: -1, Submitted: int64(f.Registered * 1000), Tasks: min(f.Tasks, maxTasks), State: "RUNNING", activeSince: leader,
			Facts: policy.Facts{Flow: f.ID, Queue: orchestrator.QueueOf(f.Role), User: f.User, Name: f.Name, Type: mesosType, Bandwidth: f.Used.Bandwidth}})
	}
	return nil
}
