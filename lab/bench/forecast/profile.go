package forecast

import (
	"context"
	"fmt"
	"os"
	"time"

	"penstock/core/character"
	"penstock/ops/characterise"
)

// endPatience is how long the follower may take to notice the application's end.
const endPatience = 2 * time.Minute

// profile follows the application as `penstock app profile` does, and describes it.
func (m *machine) profile(ctx context.Context, t *Turn, j *job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, err := os.Create(m.Path(fmt.Sprintf("profile-%s-%d.json", t.Row, t.Run)))
	if err != nil {
		return err
	}
	defer out.Close()
	type answer struct {
		file *characterise.File
		err  error
	}
	followed := make(chan answer, 1)
	f := characterise.Follower{Application: j.id, Addresses: []string{m.Nodes[0].Address}, Period: time.Second, Memory: nodeMemory, Out: out, Progress: func(string) {}}
	go func() {
		file, err := f.Run(ctx)
		followed <- answer{file, err}
	}()
	e := <-watch(ctx, j)
	if e.err != nil {
		return e.err
	}
	t.RuntimeS = round(e.status.Finished.Sub(e.status.Started).Seconds())
	select {
	case a := <-followed:
		if a.err != nil {
			return a.err
		}
		t.Profile, err = character.New(a.file.Samples, character.DefaultThresholds)
		return err
	case <-time.After(endPatience):
		return fmt.Errorf("penstock app profile has not noticed in %v that %s has ended: see %s", endPatience, j.id, out.Name())
	case <-ctx.Done():
		return ctx.Err()
	}
}
