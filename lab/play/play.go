// Package play starts a small cluster to try Penstock on: HDFS and YARN on modelled disks, a daemon
// in enforce mode, and two jobs that run again and again until the context ends. WordCount is the
// protected job and reads. TeraGen is its aggressor and writes to the same disks.
package play

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

// Options are the size of the cluster and the folders of its files.
type Options struct {
	Dir, Binary, AgentJar, Cache string // as in stand.Spec
	Rate                         int64  // rate of each of the two disks, bytes per second
	Protected, Aggressor         int    // weights
	Progress                     func(format string, args ...any)
}

const (
	mib   = 1 << 20
	disks = 2
	input = "/play/words"
)

// Play is a cluster with running jobs.
type Play struct {
	*stand.Stand
	o    Options
	jobs sync.WaitGroup
	stop context.CancelFunc

	mu      sync.Mutex
	current [2]string // ids of the current applications: the protected one, its aggressor
	err     error     // error of the first job that failed
}

// Start starts the cluster, writes the input of WordCount, and starts both jobs.
func Start(ctx context.Context, o Options) (*Play, error) {
	spec := stand.Spec{
		Name: "play", Dir: o.Dir, Binary: o.Binary, AgentJar: o.AgentJar, Cache: o.Cache, Progress: o.Progress,
		Public:  true, // containers run as other users
		Sysctls: stand.DirtyBytes(128*mib, 256*mib),
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", Weights: firstWeights}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{DataNodes: s.DataNodes("dfs"), LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")}, Governed: s.Governed(0)}
		},
		Agents: []int{disks + 1},
	}
	for i := range disks {
		spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("disk%d", i), Size: 4 << 30})
	}
	s, err := stand.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	p := &Play{Stand: s, o: o}
	o.Progress("writing the input of WordCount")
	if _, err := s.Hadoop.WriteText(ctx, input, hadoop.Text{Seed: 1, Files: 4, FileBytes: 64 * mib}); err != nil {
		return nil, errors.Join(err, s.Down())
	}
	if err := errors.Join(s.Forget(), s.SetModel(disk.HDD(o.Rate))); err != nil {
		return nil, errors.Join(err, s.Down())
	}
	working, stop := context.WithCancel(ctx)
	p.stop = stop
	p.repeat(working, 0, func(output string) hadoop.Job {
		return hadoop.Job{Kind: hadoop.WordCount, Input: input, Output: output, Queue: hadoop.QueueProtected}
	})
	p.repeat(working, 1, func(output string) hadoop.Job {
		return hadoop.Job{Kind: hadoop.TeraGen, Rows: 4_000_000, Output: output, Queue: hadoop.QueueAggressor}
	})
	return p, nil
}

// repeat runs a job again and again. The weights file has one rule for each side; each run of the
// job takes over the rule of the run before it.
func (p *Play) repeat(ctx context.Context, side int, job func(output string) hadoop.Job) {
	p.jobs.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if err := p.once(ctx, side, job(fmt.Sprintf("/play/%d-%d", side, n))); err != nil && ctx.Err() == nil {
				p.mu.Lock()
				p.err = cmp.Or(p.err, err)
				p.mu.Unlock()
				return
			}
		}
	})
}

func (p *Play) once(ctx context.Context, side int, job hadoop.Job) error {
	app, err := p.Hadoop.Submit(ctx, job)
	if err != nil {
		return err
	}
	if err = p.setWeight(side, app.ID); err == nil {
		_, err = app.Wait(ctx)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err != nil {
		return errors.Join(err, app.Kill(after))
	}
	return p.Hadoop.FS().Remove(after, job.Output)
}

// firstWeights is the text of the weights file before a job has started.
const firstWeights = `# Change weights here: they are in force as soon as the file is saved.
# penstock-lab play replaces the ids when a job ends and the next one starts.
default: 1
rules:
  - {flow: clients, weight: 1}
`

// setWeight puts a side's new application into the weights file; side is 0 for the protected job
// and 1 for its aggressor. It does not change the rest of the file, because somebody may have
// edited it.
func (p *Play) setWeight(side int, application string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := os.ReadFile(p.Nodes[0].Weights)
	if err != nil {
		return err
	}
	weight := [2]int{p.o.Protected, p.o.Aggressor}[side]
	name := [2]string{"WordCount", "TeraGen"}[side]
	changed := renameRule(string(text), p.current[side], application, weight, name)
	p.current[side] = application
	return p.Nodes[0].SetWeights(changed)
}

// renameRule replaces the application id "old" by the id "now". If old is empty, it adds a rule for
// the application with the id now.
func renameRule(text, old, now string, weight int, comment string) string {
	if old != "" {
		return strings.ReplaceAll(text, old, now)
	}
	return strings.Replace(text, "rules:\n", fmt.Sprintf("rules:\n  - {application: %s, weight: %d} # %s\n", now, weight, comment), 1)
}

// Check returns the error of a job or a daemon that has failed, if any.
func (p *Play) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if !p.Nodes[0].Alive() {
		return fmt.Errorf("the daemon has ended: see %s", p.Nodes[0].Log)
	}
	return p.Hadoop.Check()
}

// Stop ends the jobs and undoes all changes.
func (p *Play) Stop() error {
	p.stop()
	p.jobs.Wait()
	return p.Down()
}
