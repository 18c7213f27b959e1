package applications

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"penstock/broker/kerberos"
	"penstock/core/policy"
	"penstock/wire/jsonstream"
)

// sparkType is the type that YARN reports for Spark applications, so that one rule matches both.
const sparkType = "SPARK"

// spark reads the JSON page of a standalone master. The page contains everything: workers, running
// and recent applications. Spark has no single look-ups, queues or tags.
type spark struct {
	*servers
	proxy *servers // used by another goroutine than servers
}

func newSpark(addresses []string) (*spark, error) {
	s, err := newServers(addresses, kerberos.Access{})
	if err != nil {
		return nil, err
	}
	return &spark{s, s.proxy()}, nil
}

func (s *spark) ask(ctx context.Context, a *Application) (answer, error) {
	return askThrough(ctx, s.proxy, a)
}

func (*spark) name() string { return "Spark" }

// owns accepts the ids that Spark generates, as nodes do.
func (*spark) owns(flow string) bool {
	rest, ok := strings.CutPrefix(flow, "app-")
	stamp, number, cut := strings.Cut(rest, "-")
	return ok && cut && isDigits(stamp, 14, 14) && isDigits(number, 4, 10)
}

func (s *spark) list(ctx context.Context, add func(Application)) error {
	s.freshConnection()
	return s.get(ctx, "/json/", nil, func(d *json.Decoder) error {
		apps, err := parseSpark(d)
		if err != nil {
			return err
		}
		for _, a := range apps {
			if s.owns(a.Flow) {
				add(a)
			}
		}
		return nil
	})
}

// parseSpark reads a master's page. The master's status is the last member of the page, so the
// applications are valid only after the whole page has been read.
func parseSpark(d *json.Decoder) ([]Application, error) {
	var apps []Application
	status := ""
	err := jsonstream.Object(d, func(name string) (bool, error) {
		switch name {
		case "status":
			return true, d.Decode(&status)
		case "activeapps", "completedapps":
			ended := name == "completedapps"
			return true, jsonstream.Array(d, func() error {
				var a struct {
					ID    string `json:"id"`
					Name  string `json:"name"`
					User  string `json:"user"`
					State string `json:"state"`
					Start int64  `json:"starttime"` // Unix ms
				}
				if err := d.Decode(&a); err != nil {
					return err
				}
				if len(apps) == MaxApplications {
					return fmt.Errorf("more than %d applications", MaxApplications)
				}
				apps = append(apps, Application{Progress: -1, Submitted: max(a.Start, 0), State: jsonstream.Clip(a.State, maxName), Ended: ended, Succeeded: ended && a.State == "FINISHED", Facts: policy.Facts{
					Flow: jsonstream.Clip(a.ID, maxName), Name: jsonstream.Clip(a.Name, maxName), User: jsonstream.Clip(a.User, maxName), Type: sparkType}})
				return nil
			})
		}
		return false, nil
	})
	if err == nil && status != "ALIVE" {
		err = fmt.Errorf("the master's status is %.40q, not ALIVE", status)
	}
	if err != nil {
		return nil, err
	}
	return apps, nil
}
