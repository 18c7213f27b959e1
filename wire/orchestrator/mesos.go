package orchestrator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"penstock/wire/jsonstream"
)

// DefaultScalar is the custom resource by which tasks of Mesos request bandwidth, in MB/s.
const DefaultScalar = "disk_bandwidth"

// Resources are the resources of a container or a framework.
type Resources struct {
	CPUs      float64
	Memory    int64 // MB, as Mesos counts it
	Bandwidth int64 // MB/s
}

// Framework is what is read of a framework.
type Framework struct {
	// ID is the name of the application: one framework is one application, as a Spark driver is.
	ID   string
	Name string // for people
	User string
	Role string // the first one; empty: *
	// Used are the resources of its executors and tasks.
	Used       Resources
	Active     bool
	Registered float64 // Unix seconds
	Tasks      int     // that run
	Executors  []Executor
}

// Executor is a container of an agent.
type Executor struct {
	ID        string
	Container string // a UUID, as in the name of the container's cgroup
	Resources Resources
	Tasks     int
}

// Agent is what an agent's answer says about itself.
type Agent struct {
	ID, Hostname string
	Total        Resources
	Skipped      int // frameworks and executors with invalid ids
}

// framework is the part of a framework's description that is read, in an agent's or a master's answer.
type framework struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	User           string    `json:"user"`
	Role           string    `json:"role"`
	Roles          []string  `json:"roles"`
	Active         *bool     `json:"active"`
	RegisteredTime float64   `json:"registered_time"`
	Used           resources `json:"used_resources"`
	Tasks          tasks     `json:"tasks"`
	Executors      executors `json:"executors"`
}

type executor struct {
	ID        string    `json:"id"`
	Container string    `json:"container"`
	Resources resources `json:"resources"`
	Tasks     tasks     `json:"tasks"`
}

// tasks is the number of tasks of a list that run. A list may have a million, so they are not kept.
type tasks int

// UnmarshalJSON counts.
func (n *tasks) UnmarshalJSON(text []byte) error {
	all := 0
	d := json.NewDecoder(bytes.NewReader(text))
	return jsonstream.Array(d, func() error {
		if all++; all > maxTasks {
			return fmt.Errorf("a framework with more than %d tasks", maxTasks)
		}
		var task struct {
			State string `json:"state"`
		}
		err := d.Decode(&task)
		if task.State == "TASK_RUNNING" {
			*n++
		}
		return err
	})
}

// executors are at most maxExecutors.
type executors []executor

// UnmarshalJSON stops at the bound.
func (all *executors) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	return jsonstream.Array(d, func() error {
		if len(*all) >= maxExecutors {
			return fmt.Errorf("a framework with more than %d executors", maxExecutors)
		}
		*all = append(*all, executor{})
		return d.Decode(&(*all)[len(*all)-1])
	})
}

// resources are amounts by name: scalars are numbers, ranges and sets are strings.
type resources map[string]json.RawMessage

// ReadAgent reads the answer of a Mesos agent to /state: its frameworks with their executors. scalar is the
// name of the resource that counts as bandwidth. Frameworks that have ended are not read. An error of each
// ends the list.
func ReadAgent(d *json.Decoder, scalar string, each func(Framework) error) (a Agent, err error) {
	list := false
	var own resources
	err = jsonstream.Object(d, func(name string) (bool, error) {
		switch name {
		case "id":
			return true, d.Decode(&a.ID)
		case "hostname":
			return true, d.Decode(&a.Hostname)
		case "resources":
			return true, d.Decode(&own)
		case "frameworks":
			list = true
			skipped, err := readFrameworks(d, scalar, each)
			a.Skipped += skipped
			return true, err
		}
		return false, nil
	})
	if err == nil && !list {
		err = errors.New("no list of frameworks: give the address of an agent's state, such as http://127.0.0.1:5051/state")
	}
	if err != nil {
		return Agent{}, err
	}
	a.ID, a.Hostname, a.Total = jsonstream.Clip(a.ID, maxText), jsonstream.Clip(a.Hostname, maxText), own.read(scalar)
	return a, nil
}

// ReadFrameworks reads the answer of a Mesos master to /master/frameworks. Frameworks that have ended are not
// read. skipped is the number of frameworks with invalid ids.
func ReadFrameworks(d *json.Decoder, scalar string, each func(Framework) error) (skipped int, err error) {
	list := false
	err = jsonstream.Object(d, func(name string) (bool, error) {
		if name != "frameworks" {
			return false, nil
		}
		list = true
		skipped, err = readFrameworks(d, scalar, each)
		return true, err
	})
	if err == nil && !list {
		err = errors.New("no list of frameworks: is this a Mesos master?")
	}
	return skipped, err
}

func readFrameworks(d *json.Decoder, scalar string, each func(Framework) error) (skipped int, err error) {
	err = jsonstream.Array(d, func() error {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		var f framework
		if err := json.Unmarshal(raw, &f); err != nil {
			return err
		}
		if !IsFramework(f.ID) {
			skipped++
			return nil
		}
		read, wrong := f.read(scalar)
		skipped += wrong
		return each(read)
	})
	return skipped, err
}

// Limits of one list of a framework.
const (
	maxExecutors = 100_000
	maxTasks     = 1_000_000
)

func (f *framework) read(scalar string) (out Framework, skipped int) {
	out = Framework{ID: f.ID, Name: jsonstream.Clip(f.Name, maxText), User: jsonstream.Clip(f.User, maxText), Role: f.Role, Used: f.Used.read(scalar),
		Active: f.Active == nil || *f.Active, Tasks: int(f.Tasks)}
	if len(f.Roles) > 0 {
		out.Role = f.Roles[0]
	}
	if out.Role = jsonstream.Clip(out.Role, maxText); out.Role == "*" {
		out.Role = ""
	}
	if f.RegisteredTime > 0 && f.RegisteredTime < 1e11 {
		out.Registered = f.RegisteredTime
	}
	for _, e := range f.Executors {
		switch {
		case e.Container == "": // in a master's answer, executors have no containers
		case !isUUID(e.Container):
			skipped++
		default:
			out.Executors = append(out.Executors, Executor{ID: jsonstream.Clip(e.ID, maxText), Container: e.Container, Resources: e.Resources.read(scalar), Tasks: int(e.Tasks)})
		}
	}
	return out, skipped
}

// read returns the amounts of the resources that are used. What is no number is 0.
func (r resources) read(scalar string) Resources {
	return Resources{CPUs: r.scalar("cpus"), Memory: int64(r.scalar("mem")), Bandwidth: bandwidth(r.scalar(scalar))}
}

// scalar returns the amount of a resource, 0 to 1e12.
func (r resources) scalar(name string) float64 {
	var v float64
	if json.Unmarshal(r[name], &v) != nil || !(v > 0) {
		return 0
	}
	return math.Min(v, 1e12)
}

// QueueOf returns the path of the queue that stands for a role of Mesos in a policy: analytics/etl is
// mesos.analytics.etl.
func QueueOf(role string) string {
	if role == "" {
		return "mesos"
	}
	return "mesos." + strings.ReplaceAll(role, "/", ".")
}
