package hadoop

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// Task is the JVM of an attempt of a task.
type Task struct {
	Attempt string // such as attempt_1700000000000_0007_r_000001_0
	PID     int
	LogDir  string // folder of its container's logs
}

// Reduce reports whether the task is a reduce.
func (t Task) Reduce() bool { return strings.Contains(t.Attempt, "_r_") }

// Tasks returns the application's tasks that run now. It considers only processes that carry the mark of the cluster's
// run, which NodeManagers pass on to containers.
func (a *App) Tasks() (all []Task, err error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		command, err := p.CmdLine()
		if err != nil {
			continue // it has ended
		}
		attempt, application, ok := attemptOf(command)
		if !ok || application != a.ID {
			continue
		}
		if variables, err := p.Environ(); err != nil || !slices.Contains(variables, a.c.book.Mark()) {
			continue
		}
		all = append(all, Task{Attempt: attempt, PID: p.PID, LogDir: property(command, "yarn.app.container.log.dir")})
	}
	return all, nil
}

// taskAttempt is a task's attempt in the command line of its JVM.
var taskAttempt = regexp.MustCompile(`^attempt_(\d+_\d+)_[mr]_\d+_\d+$`)

// attemptOf returns the attempt of a task's JVM and its application, from its command line.
func attemptOf(command []string) (attempt, application string, ok bool) {
	child := false
	for _, word := range command {
		if m := taskAttempt.FindStringSubmatch(word); child && m != nil {
			return word, "application_" + m[1], true
		}
		child = child || strings.HasSuffix(word, ".YarnChild")
	}
	return "", "", false
}

// property returns the value of a system property in a JVM's command line.
func property(command []string, name string) string {
	for _, word := range command {
		if value, ok := strings.CutPrefix(word, "-D"+name+"="); ok {
			return value
		}
	}
	return ""
}
