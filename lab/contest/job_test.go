package contest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestJobGroup(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	var killed []string
	made := func(id string, started, elapsed time.Duration) (*Job, chan error) {
		end := make(chan error)
		j := NewJob(id, func(ctx context.Context) (time.Time, time.Duration, error) {
			select {
			case err := <-end:
				return begin.Add(started), elapsed, err
			case <-ctx.Done():
				return begin, 0, ctx.Err()
			}
		}, func(context.Context) error { killed = append(killed, id); return nil })
		j.Paths = []string{"/" + id}
		return j, end
	}
	a, endA := made("application_1_1", 2*time.Second, 10*time.Second)
	b, endB := made("application_1_2", time.Second, 20*time.Second)
	c := Together([]*Job{a, b})
	if got := strings.Join(c.Applications, ",") + strings.Join(c.Paths, ","); got != "application_1_1,application_1_2/application_1_1,/application_1_2" {
		t.Errorf("applications and paths %q", got)
	}
	endB <- nil
	<-b.Done
	select {
	case <-c.Done:
		t.Error("done while one still runs")
	default:
	}
	endA <- nil
	<-c.Done
	started, finished, err := c.Times()
	if err != nil || !started.Equal(begin.Add(time.Second)) || !finished.Equal(begin.Add(12*time.Second)) {
		t.Errorf("from %v to %v, %v", started, finished, err)
	}

	a, endA = made("application_1_3", 0, time.Second)
	b, _ = made("application_1_4", 0, time.Second)
	c = Together([]*Job{a, b})
	lost := errors.New("lost")
	endA <- lost
	<-a.Done
	if err := c.Kill(t.Context()); err != nil || strings.Join(killed, ",") != "application_1_3,application_1_4" {
		t.Errorf("killed %q, %v", killed, err)
	}
	<-c.Done
	if _, _, err := c.Times(); !errors.Is(err, lost) || !errors.Is(err, context.Canceled) {
		t.Errorf("a failed job and a killed one: %v", err)
	}
}
