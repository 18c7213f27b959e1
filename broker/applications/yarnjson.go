package applications

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"penstock/core/policy"
	"penstock/wire/jsonstream"
)

// DefaultResource is the YARN resource type by which applications request bandwidth. It has no
// dot, since MapReduce would otherwise not find it among a job's settings.
const DefaultResource = "disk-bandwidth"

// Limits of the text that is kept of one application, in bytes.
const (
	maxName  = 1024
	maxTasks = 1_000_000
	maxTags  = 4096 // all tags together; YARN's default is ten of 100
)

// yarnApp is the part of YARN's description of an application that is read.
type yarnApp struct {
	ID              string   `json:"id"`
	User            string   `json:"user"`
	Name            string   `json:"name"`
	Queue           string   `json:"queue"`
	State           string   `json:"state"`
	ApplicationType string   `json:"applicationType"`
	ApplicationTags string   `json:"applicationTags"`
	Progress        *float64 `json:"progress"` // percent
	Containers      int      `json:"runningContainers"`
	StartedTime     int64    `json:"startedTime"` // ms; 0 if the broker's user has no right to see it
	FinishedTime    int64    `json:"finishedTime"`
	FinalStatus     string   `json:"finalStatus"`
	ClusterID       int64    `json:"clusterId"` // start of the answering ResourceManager's active phase, in Unix ms
	ResourceInfo    struct {
		ResourceUsagesByPartition []struct {
			Used struct {
				ResourceInformations struct {
					ResourceInformation []amount `json:"resourceInformation"`
				} `json:"resourceInformations"`
			} `json:"used"`
		} `json:"resourceUsagesByPartition"`
	} `json:"resourceInfo"`
}

// amount is an amount of one resource type.
type amount struct {
	Name  string `json:"name"`
	Units string `json:"units"`
	Value int64  `json:"value"`
}

// parseApps reads {"apps": {"app": [...]}}, one application at a time.
func parseApps(d *json.Decoder, each func(*yarnApp) error) error {
	apps := false
	err := jsonstream.Object(d, func(name string) (bool, error) {
		if name != "apps" {
			return false, nil
		}
		apps = true
		return true, jsonstream.Object(d, func(name string) (bool, error) {
			if name != "app" {
				return false, nil
			}
			return true, jsonstream.Array(d, func() error {
				var a yarnApp
				if err := d.Decode(&a); err != nil {
					return err
				}
				return each(&a)
			})
		})
	})
	if err == nil && !apps {
		err = fmt.Errorf("no list of applications in the answer")
	}
	return err
}

// parseApp reads {"app": {...}}; nil if there is none.
func parseApp(d *json.Decoder) (a *yarnApp, err error) {
	err = jsonstream.Object(d, func(name string) (bool, error) {
		if name != "app" {
			return false, nil
		}
		return true, d.Decode(&a)
	})
	return a, err
}

func (a *yarnApp) application(resource string) Application {
	app := Application{Progress: a.progress(), Submitted: max(a.StartedTime, 0), Tasks: min(max(a.Containers-1, 0), maxTasks), State: jsonstream.Clip(a.State, maxName), activeSince: a.ClusterID, Facts: policy.Facts{Flow: strings.Clone(a.ID), Queue: jsonstream.Clip(a.Queue, maxName),
		User: jsonstream.Clip(a.User, maxName), Name: jsonstream.Clip(a.Name, maxName), Type: jsonstream.Clip(a.ApplicationType, maxName)}}
	switch a.State {
	case "FINISHED", "FAILED", "KILLED":
		app.Ended, app.Finished = true, max(a.FinishedTime, 0)
		app.Succeeded = a.State == "FINISHED" && a.FinalStatus == "SUCCEEDED"
	}
	left := maxTags
	for tag := range strings.SplitSeq(a.ApplicationTags, ",") {
		if left -= len(tag); left < 0 {
			break
		}
		if tag != "" {
			app.Tags = append(app.Tags, jsonstream.Clip(tag, maxTags))
		}
	}
	held := 0.0
	for _, p := range a.ResourceInfo.ResourceUsagesByPartition {
		for _, r := range p.Used.ResourceInformations.ResourceInformation {
			if r.Name == resource {
				held += r.bytes()
			}
		}
	}
	if held > 0 {
		app.Bandwidth = int64(min(max(math.Round(held/1e6), 1), policy.MaxWeight))
	}
	return app
}

// progress returns the progress as a part; -1 if it is not known. That of a Spark application is 10 % from its start to its end, and
// RunOf does not use it.
func (a *yarnApp) progress() float64 {
	if a.Progress == nil || !(*a.Progress >= 0 && *a.Progress <= 100) {
		return -1
	}
	return *a.Progress / 100
}

// bytes returns the amount in the base unit; 0 for a unit that YARN does not have
// (UnitsConversionUtil).
func (r amount) bytes() float64 {
	factor := map[string]float64{"p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}[r.Units]
	return max(float64(r.Value), 0) * factor
}

// queue is a queue of CapacityScheduler.
type queue struct {
	Name   string `json:"queueName"`
	Queues struct {
		Queue []queue `json:"queue"`
	} `json:"queues"`
}

// parseQueues returns the full paths of the scheduler's leaf queues by name. A name that several
// leaves have maps to the empty string.
func parseQueues(d *json.Decoder) (map[string]string, error) {
	var doc struct {
		Scheduler struct {
			SchedulerInfo queue `json:"schedulerInfo"`
		} `json:"scheduler"`
	}
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	paths, seen := map[string]string{}, 0
	var walk func(q *queue, above string, depth int) error
	walk = func(q *queue, above string, depth int) error {
		if seen++; seen > maxQueues || depth > 100 || len(above)+len(q.Name) > maxName {
			return fmt.Errorf("more than %d queues, or too many levels", maxQueues)
		}
		at := q.Name
		if above != "" {
			at = above + "." + q.Name
		}
		for i := range q.Queues.Queue {
			if err := walk(&q.Queues.Queue[i], at, depth+1); err != nil {
				return err
			}
		}
		if len(q.Queues.Queue) == 0 && q.Name != "" {
			if _, twice := paths[q.Name]; twice {
				at = ""
			}
			paths[q.Name] = at
		}
		return nil
	}
	if err := walk(&doc.Scheduler.SchedulerInfo, "", 0); err != nil {
		return nil, err
	}
	return paths, nil
}
