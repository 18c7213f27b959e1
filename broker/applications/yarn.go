package applications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"penstock/broker/kerberos"
)

const (
	// pageSize is the maximum number of applications in one answer, and maxPages the maximum number
	// of answers for one list. This is enough for a full directory if the answers are half full on
	// average and some are empty.
	pageSize = 1000
	maxPages = 400
	// queueRefreshInterval is the least time between two requests for the scheduler's queues.
	queueRefreshInterval = time.Minute
	maxQueues            = 100_000
)

// yarn reads the REST interface of a ResourceManager. As of the sources of 3.4.2:
//
//   - The parameter limit cuts a list off. The list has the order of a hash table, and the rest
//     cannot be requested as a next page. So a list that is as long as the limit is requested again
//     as two lists, one for each half of the range of submission times (startedTimeBegin and
//     startedTimeEnd, both inclusive).
//   - An application's resource requests, timeouts and label expressions can be left out
//     (deSelects). Allocated resources are reported by CapacityScheduler only.
//   - A standby answers with a redirect, or with a page that reloads itself.
type yarn struct {
	*servers
	proxy        *servers // used by another goroutine than servers
	log          *slog.Logger
	refused      sync.Once
	resource     string
	pageSize     int
	leafPaths    map[string]string // full paths of leaf queues, by name
	queuesReadAt time.Time         // when they were read
}

func newYARN(addresses []string, access kerberos.Access, resource string, log *slog.Logger) (*yarn, error) {
	s, err := newServers(addresses, access)
	if err != nil {
		return nil, err
	}
	return &yarn{servers: s, proxy: s.proxy(), log: log, resource: resource, pageSize: pageSize}, nil
}

func (*yarn) name() string { return "YARN" }

func (y *yarn) ask(ctx context.Context, a *Application) (answer, error) {
	return askThrough(ctx, y.proxy, a)
}

func (*yarn) owns(flow string) bool {
	rest, ok := strings.CutPrefix(flow, "application_")
	stamp, number, cut := strings.Cut(rest, "_")
	if !ok || !cut || !isDigits(stamp, 13, 13) || !isDigits(number, 4, 10) {
		return false
	}
	// The number in Hadoop's id is an int, padded to four digits. owns refuses other numbers.
	_, err := strconv.ParseInt(number, 10, 32)
	return err == nil && (len(number) == 4 || number[0] != '0')
}

// isDigits reports whether s consists of low to high digits.
func isDigits(s string, low, high int) bool {
	return len(s) >= low && len(s) <= high && strings.Trim(s, "0123456789") == ""
}

// timeSpan is a range of submission times in ms, both ends inclusive.
type timeSpan struct{ begin, end int64 }

func (y *yarn) list(ctx context.Context, add func(Application)) error {
	y.freshConnection()
	todo := []timeSpan{{0, math.MaxInt64}}
	for pages := 0; len(todo) > 0; pages++ {
		if pages == maxPages {
			return fmt.Errorf("more than %d applications at work, or so many were submitted at about the same time that %d answers did not contain them all", MaxApplications, maxPages)
		}
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		limit := y.pageSize
		if at.begin == at.end { // cannot be halved
			limit = MaxApplications
		}
		query := url.Values{"states": {"SUBMITTED,ACCEPTED,RUNNING"}, "limit": {strconv.Itoa(limit)},
			"deSelects":        {"resourceRequests,timeouts,appNodeLabelExpression,amNodeLabelExpression"},
			"startedTimeBegin": {strconv.FormatInt(at.begin, 10)}, "startedTimeEnd": {strconv.FormatInt(at.end, 10)}}
		count := 0
		var times []int64
		err := y.get(ctx, "/ws/v1/cluster/apps", query, func(d *json.Decoder) error {
			count, times = 0, times[:0]
			return parseApps(d, func(a *yarnApp) error {
				if count++; count > limit {
					return fmt.Errorf("more than the requested %d applications", limit)
				}
				times = append(times, a.StartedTime)
				if y.owns(a.ID) {
					add(y.application(ctx, a))
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if count < limit {
			continue
		}
		if at.begin == at.end {
			return fmt.Errorf("more than %d applications were submitted at the same moment", limit)
		}
		slices.Sort(times)
		// Times are 0 if the broker's user has no right to see them.
		middle := times[len(times)/2]
		if middle < at.begin || middle >= at.end {
			middle = at.begin + (at.end-at.begin)/2
		}
		todo = append(todo, timeSpan{middle + 1, at.end}, timeSpan{at.begin, middle})
	}
	return nil
}

func (y *yarn) find(ctx context.Context, flow string) (Application, bool, error) {
	var found *yarnApp
	err := y.get(ctx, "/ws/v1/cluster/apps/"+flow, nil, func(d *json.Decoder) error {
		a, err := parseApp(d)
		found = a
		return err
	})
	var bad errBadRequest
	switch {
	case errors.Is(err, errNotFound):
		return Application{}, false, nil
	case errors.As(err, &bad): // other names are looked up as before
		y.refused.Do(func() {
			y.log.Warn("application directory: the ResourceManager refuses an application's name; of this and similar applications, only the flow's name is known",
				"application", flow, "error", err)
		})
		return Application{}, false, nil
	case err != nil:
		return Application{}, false, err
	case found == nil || found.ID != flow:
		return Application{}, false, errors.New("the ResourceManager returned another application than requested")
	}
	return y.application(ctx, found), true, nil
}

// application returns the directory's entry for an application of YARN.
func (y *yarn) application(ctx context.Context, a *yarnApp) Application {
	app := a.application(y.resource)
	app.Queue = y.queuePath(ctx, app.Queue)
	return app
}

// queuePath returns a queue's full path. CapacityScheduler of 3.4 reports the path. An older
// CapacityScheduler may report only the leaf's name; queuePath then looks up the path. If several
// leaves have that name, queuePath returns the name.
func (y *yarn) queuePath(ctx context.Context, queue string) string {
	if queue == "" || queue == "root" || strings.HasPrefix(queue, "root.") {
		return queue
	}
	if p := y.leafPaths[queue]; p != "" {
		return p
	}
	if time.Since(y.queuesReadAt) > queueRefreshInterval {
		y.queuesReadAt = time.Now()
		err := y.get(ctx, "/ws/v1/cluster/scheduler", nil, func(d *json.Decoder) error {
			paths, err := parseQueues(d)
			if err == nil {
				y.leafPaths = paths
			}
			return err
		})
		if p := y.leafPaths[queue]; err == nil && p != "" {
			return p
		}
	}
	return queue
}
