package isolation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"penstock/lab/hadoop"
)

func TestJobGroup(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	made := func(id string, started, elapsed time.Duration) *job {
		return &job{app: &hadoop.App{ID: id}, done: make(chan struct{}),
			status: hadoop.Status{Started: begin.Add(started), Elapsed: elapsed}}
	}
	a, b := made("application_1_1", 2*time.Second, 10*time.Second), made("application_1_2", time.Second, 20*time.Second)
	c := newJobGroup([]*job{a, b})
	if got := (&Run{Aggressor: c.Application()}).aggressors(); strings.Join(got, ",") != "application_1_1,application_1_2" {
		t.Errorf("applications %q", got)
	}
	close(b.done)
	select {
	case <-c.Done():
		t.Error("done while one still runs")
	default:
	}
	close(a.done)
	<-c.Done()
	started, finished, err := c.Times()
	if err != nil || !started.Equal(begin.Add(time.Second)) || !finished.Equal(begin.Add(12*time.Second)) {
		t.Errorf("from %v to %v, %v", started, finished, err)
	}
	a.err = errors.New("lost")
	if _, _, err := c.Times(); !errors.Is(err, a.err) {
		t.Errorf("a failed job: %v", err)
	}
}
