package spark

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Step is a part of a program that has ended.
type Step struct {
	Began   time.Time
	Elapsed time.Duration
}

// End returns when the step ended.
func (s Step) End() time.Time { return s.Began.Add(s.Elapsed) }

// Step waits until the application, which must run Sort or WordCount, has ended a step: "ready" or
// "done".
func (a *App) Step(ctx context.Context, name string) (Step, error) {
	line, err := a.p.Find(ctx, regexp.MustCompile(`(?m)^\{"step": "`+regexp.QuoteMeta(name)+`".*\}$`))
	if err != nil {
		return Step{}, err
	}
	var said struct{ Began, Seconds float64 }
	if err := json.Unmarshal([]byte(line[0]), &said); err != nil {
		return Step{}, fmt.Errorf("%s: %q: %w", a.ID, line[0], err)
	}
	return Step{Began: time.UnixMicro(int64(said.Began * 1e6)), Elapsed: time.Duration(said.Seconds * float64(time.Second))}, nil
}
