package soak

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

// What Penstock's client in a task has counted only the task reports, when it
// ends: an agent of ours in its JVM writes it down (Waits.java).

//go:embed Waits.java
var waitsSource []byte

// TaskWaits are the tasks' waits without a daemon.
type TaskWaits struct {
	Tasks  int     `json:"tasks"` // that have told
	Held   int     `json:"held"`  // of them, those that waited at all
	Waits  int64   `json:"waits"` // of these
	LongMS float64 `json:"longest_ms"`
}

func (m *machine) waitsDir() string { return filepath.Join(m.Dir, "waits") }
func (m *machine) waitsJar() string { return filepath.Join(m.Dir, "waits.jar") }

// compileWaits makes the jar. It needs a JDK.
func (m *machine) compileWaits(ctx context.Context) error {
	dir := filepath.Join(m.Dir, "waits-classes")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(m.waitsDir(), 0o755)); err != nil {
		return err
	}
	source, manifest := filepath.Join(dir, "Waits.java"), filepath.Join(dir, "manifest")
	if err := errors.Join(os.WriteFile(source, waitsSource, 0o644), os.WriteFile(manifest, []byte("Premain-Class: Waits\n"), 0o644)); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"javac", "-d", dir, source}, {"jar", "--create", "--file", m.waitsJar(), "--manifest", manifest, "-C", dir, "Waits.class"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make the tasks' agent (needs a JDK): %w: %s", err, out)
		}
	}
	return nil
}

// told are settings of a TeraSort that has phases long enough to be hit, and whose tasks
// tell what they waited.
func (m *machine) told() map[string]string {
	option := fmt.Sprintf("-Xmx%dm -XX:+UseSerialGC -javaagent:%s=%s", taskHeapMB, m.waitsJar(), m.waitsDir())
	return map[string]string{
		"mapreduce.map.java.opts": option, "mapreduce.reduce.java.opts": option,
		"mapreduce.task.io.sort.mb":                     "8",   // several spills a map, and a merge
		"mapreduce.job.reduce.slowstart.completedmaps":  "0.5", // half of the maps run alone
		"mapreduce.reduce.shuffle.input.buffer.percent": "0.1", // what is fetched goes to the disk
		"mapreduce.task.progress-report.interval":       "200", // ms
	}
}

// taskHeapMB is what a task of a TeraSort gets.
const taskHeapMB = 400

// taskWaits reads what tasks have told since it was asked last.
func (m *machine) taskWaits() (w TaskWaits, err error) {
	told, err := os.ReadDir(m.waitsDir())
	for _, task := range told {
		path := filepath.Join(m.waitsDir(), task.Name())
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			return w, readErr
		}
		err = errors.Join(err, w.add(string(text)), os.Remove(path))
	}
	return w, err
}

// add takes what one task has told.
func (w *TaskWaits) add(text string) error {
	var count, nanos int64
	if _, err := fmt.Sscanf(text, "%d %d", &count, &nanos); err != nil || count < 0 || nanos < 0 {
		return fmt.Errorf("a task tells %q of its waits, want two numbers", text)
	}
	w.Tasks++
	w.Waits += count
	w.LongMS = max(w.LongMS, float64(nanos)/1e6)
	if count > 0 {
		w.Held++
	}
	return nil
}

// merge adds another round's.
func (w *TaskWaits) merge(o TaskWaits) {
	w.Tasks, w.Held, w.Waits, w.LongMS = w.Tasks+o.Tasks, w.Held+o.Held, w.Waits+o.Waits, max(w.LongMS, o.LongMS)
}

// Phase is how far a TeraSort was when it was hit.
type Phase string

// The phases, each of which uses disks and network in its own way.
const (
	PhaseMap     Phase = "map"     // maps read, spill and merge, and no reduce has begun
	PhaseShuffle Phase = "shuffle" // reduces fetch what maps have left, and the last maps run
	PhaseMerge   Phase = "merge"   // and merge it
	PhaseReduce  Phase = "reduce"  // and write
)

var phases = []Phase{PhaseMap, PhaseShuffle, PhaseMerge, PhaseReduce}

// phaseOf tells the phase by the job's own progress, in percent. A reduce's first third
// is its shuffle, its second its merge.
func phaseOf(maps, reduces float64) Phase {
	switch {
	case reduces == 0 && maps < 100:
		return PhaseMap
	case reduces < 100.0/3:
		return PhaseShuffle
	case reduces < 200.0/3:
		return PhaseMerge
	}
	return PhaseReduce
}

// reach waits until a TeraSort is in the step's phase, and for the step's pause, and
// gives the phase that it is in then.
func (c *campaign) reach(ctx context.Context, s Step) (Phase, error) {
	late, cancel := context.WithTimeoutCause(ctx, roundPatience, fmt.Errorf("no TeraSort came to the phase %s within %v", s.In, roundPatience))
	defer cancel()
	for late.Err() == nil {
		if c.phase(late) == s.In && experiment.Pause(late, s.Pause) == nil {
			if p := c.phase(late); p != "" {
				return p, nil
			}
		}
		_ = experiment.Pause(late, 50*time.Millisecond) // its end is the loop's
	}
	return "", context.Cause(late)
}

// phase is that of the TeraSort under way, by the job's own master; empty: there is none, or it does not tell.
func (c *campaign) phase(ctx context.Context) Phase {
	app := c.sort.Load()
	if app == nil {
		return ""
	}
	if s, err := app.Status(ctx); err != nil || s.Ended() || s.Containers < 2 {
		return ""
	}
	body, err := hadoop.Page(ctx, fmt.Sprintf("%s/proxy/%s/ws/v1/mapreduce/jobs", c.m.Hadoop.ResourceManagerURL(), app.ID))
	if err != nil {
		return ""
	}
	p, err := parseProgress(body)
	if err != nil {
		return ""
	}
	return p
}

// errNotRunning: a job whose tasks do not run yet, or no longer.
var errNotRunning = errors.New("the job's tasks do not run")

// parseProgress reads a MapReduce master's list of jobs, which is one long.
func parseProgress(body []byte) (Phase, error) {
	var doc struct {
		Jobs struct {
			Job []struct{ MapProgress, ReduceProgress float64 }
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return "", fmt.Errorf("the job's master: %w", err)
	}
	if len(doc.Jobs.Job) != 1 {
		return "", errNotRunning
	}
	return phaseOf(doc.Jobs.Job[0].MapProgress, doc.Jobs.Job[0].ReduceProgress), nil
}
