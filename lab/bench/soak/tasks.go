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

// The counters of Penstock's client in a task exist only in the task's own JVM. A small Java agent
// in that JVM writes the counters to a file when the task ends (Waits.java).

//go:embed Waits.java
var waitsSource []byte

// TaskWaits are the tasks' waits without a daemon.
type TaskWaits struct {
	Tasks  int     `json:"tasks"` // tasks that have reported
	Held   int     `json:"held"`  // tasks that waited
	Waits  int64   `json:"waits"` // of all tasks
	LongMS float64 `json:"longest_ms"`
}

func (m *machine) waitsDir() string { return filepath.Join(m.Dir, "waits") }
func (m *machine) waitsJar() string { return filepath.Join(m.Dir, "waits.jar") }

// compileWaits makes the jar of the Java agent. It needs a JDK.
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

// told returns the settings of a TeraSort whose phases are long enough for a kill, and whose tasks
// report their waits.
func (m *machine) told() map[string]string {
	option := fmt.Sprintf("-Xmx%dm -XX:+UseSerialGC -javaagent:%s=%s", taskHeapMB, m.waitsJar(), m.waitsDir())
	return map[string]string{
		"mapreduce.map.java.opts": option, "mapreduce.reduce.java.opts": option,
		"mapreduce.task.io.sort.mb":                     "8",   // several spills per map, and a merge
		"mapreduce.job.reduce.slowstart.completedmaps":  "0.5", // half of the maps run before the first reduce
		"mapreduce.reduce.shuffle.input.buffer.percent": "0.1", // fetched data goes to the disk
		"mapreduce.task.progress-report.interval":       "200", // ms
	}
}

// taskHeapMB is the heap of a TeraSort's task, in MB.
const taskHeapMB = 400

// taskWaits reads the reports that tasks have written since the last call.
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

// add adds one task's report.
func (w *TaskWaits) add(text string) error {
	var count, nanos int64
	if _, err := fmt.Sscanf(text, "%d %d", &count, &nanos); err != nil || count < 0 || nanos < 0 {
		return fmt.Errorf("a task's report of its waits is %q, want two numbers", text)
	}
	w.Tasks++
	w.Waits += count
	w.LongMS = max(w.LongMS, float64(nanos)/1e6)
	if count > 0 {
		w.Held++
	}
	return nil
}

// merge adds the waits of another round.
func (w *TaskWaits) merge(o TaskWaits) {
	w.Tasks, w.Held, w.Waits, w.LongMS = w.Tasks+o.Tasks, w.Held+o.Held, w.Waits+o.Waits, max(w.LongMS, o.LongMS)
}

// Phase is the phase of a TeraSort at the time of a kill.
type Phase string

// The phases, each of which uses disks and network in its own way.
const (
	PhaseMap     Phase = "map"     // maps read, spill and merge, and no reduce has begun
	PhaseShuffle Phase = "shuffle" // reduces fetch the maps' output, and the last maps run
	PhaseMerge   Phase = "merge"   // reduces merge the fetched output
	PhaseReduce  Phase = "reduce"  // reduces write
)

var phases = []Phase{PhaseMap, PhaseShuffle, PhaseMerge, PhaseReduce}

// phaseOf returns the phase according to the job's own progress, in percent. The first third of a
// reduce's progress is the shuffle, the second third the merge.
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

// reach waits until a TeraSort is in the step's phase, and then for the step's pause. It returns
// the phase after the pause.
func (c *campaign) reach(ctx context.Context, s Step) (Phase, error) {
	late, cancel := context.WithTimeoutCause(ctx, roundPatience, fmt.Errorf("no TeraSort reached the phase %s within %v", s.In, roundPatience))
	defer cancel()
	for late.Err() == nil {
		if c.phase(late) == s.In && experiment.Pause(late, s.Pause) == nil {
			if p := c.phase(late); p != "" {
				return p, nil
			}
		}
		_ = experiment.Pause(late, 50*time.Millisecond) // the loop ends when late ends
	}
	return "", context.Cause(late)
}

// phase returns the phase of the running TeraSort, from the job's ApplicationMaster. It returns ""
// if no TeraSort runs or the ApplicationMaster does not answer.
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

// errNotRunning reports that the job's tasks have not started or have ended.
var errNotRunning = errors.New("the job's tasks do not run")

// parseProgress parses the list of jobs of a MapReduce ApplicationMaster, which has one entry.
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
