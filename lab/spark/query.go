package spark

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Query is TPCH's report of a query that has ended.
type Query struct {
	Began   time.Time     // when Spark received the query's text; its executors were already running
	Elapsed time.Duration // time until the driver had the rows
	Rows    int
	SHA256  string // of the rows, hexadecimal
}

// Query waits for a query of the application, which must run TPCH, and returns when the driver has
// the query's rows. The driver may still be running.
func (a *App) Query(ctx context.Context, name string) (Query, error) {
	line, err := a.p.Find(ctx, regexp.MustCompile(`(?m)^\{"query": "`+regexp.QuoteMeta(name)+`".*\}$`))
	if err != nil {
		return Query{}, err
	}
	var said struct {
		Began, Seconds float64
		Rows           int
		SHA256         string
	}
	if err := json.Unmarshal([]byte(line[0]), &said); err != nil {
		return Query{}, fmt.Errorf("%s: %q: %w", a.ID, line[0], err)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Query{Began: time.UnixMicro(int64(said.Began * 1e6)), Elapsed: seconds(said.Seconds), Rows: said.Rows, SHA256: said.SHA256}, nil
}
