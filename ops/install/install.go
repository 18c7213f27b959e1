// Package install prepares configuration folders of Hadoop, Spark and Tez for Penstock.
//
// A folder belongs to its operator: it has comments, an order, files that tools write, and tens of
// other settings. So no file is reformatted. A file is parsed to find the byte where a value ends,
// and the text is changed there. Then the result is parsed again: our keys must be as intended, all
// others as before, and undoing our changes must return the former text to the byte; otherwise
// nothing is written. Each change is recorded in a state file in the folder before it is made. So
// an interrupted run can continue, and --remove restores exactly the former text, while changes
// that others have made elsewhere stay. A setting that somebody has set to another value is
// reported and not overwritten.
//
// Nothing may break on a machine without the jar: a client, a partly upgraded cluster, a container
// image. A class that cannot be loaded fails every "hdfs dfs", because Hadoop looks up fs.file.impl
// for every local file. So core-site.xml, which every daemon and shell reads, is not changed.
// mapred-site.xml names Hadoop's own class through a variable. Only a JVM with the jar on its class
// path gets another value of this variable, as a system property (not as an environment variable,
// which children of a task would inherit). Spark's fs.hdfs.impl is set in the same way, because
// spark-submit in cluster mode has the settings but not the driver's class path.
package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Options select the folders and the settings of a run.
type Options struct {
	// HadoopConf, SparkConf and TezConf are the folders. Each may be empty, but not all of them.
	HadoopConf, SparkConf, TezConf string
	// AgentJar and Socket are absolute paths on the machines that use the folders. They consist of
	// letters, digits and _ / . + @ % - only.
	AgentJar, Socket string
	// DiskBandwidth is the bandwidth of a NodeManager's disks that YARN may allocate, in MB/s, such
	// as "200M". "0" removes the setting; an empty value keeps what an earlier Apply has set.
	DiskBandwidth string
	// LeastJava is the oldest Java of DataNodes and NodeManagers that load the agent, 8 to 16. Before
	// Java 16 the agent needs the daemon's setting `loopback`. 0 keeps what an earlier Apply has set, at
	// first 16.
	LeastJava int
	// Force overwrites settings of others. On removal, Force leaves files that were changed by hand
	// as they are (of bandwidth's files only, if DiskBandwidth is "0").
	Force bool
	// step is called before each change on disk; tests let it fail.
	step func(what, path string) error
}

// Versions of Java: the oldest that the agent runs on, and the first that has Unix sockets.
const (
	oldestJava      = 8
	unixSocketsJava = 16
)

// socketMax is the longest path of a Unix socket, in bytes.
const socketMax = 107

// megabytes matches a bandwidth of 1 to 999,999 MB/s.
var megabytes = regexp.MustCompile(`^[1-9][0-9]{0,5}M$`)

var plainPath = regexp.MustCompile(`^/[A-Za-z0-9_/.+@%-]+$`)

// Validate returns an error for flags that contradict each other. For a removal only the folders
// matter; a bandwidth is an error, since the operator may want to remove only the bandwidth.
func (o Options) Validate(remove bool) error {
	if o.HadoopConf == "" && o.SparkConf == "" && o.TezConf == "" {
		return errors.New("name a folder with --hadoop-conf, --spark-conf or --tez-conf")
	}
	if remove {
		if o.DiskBandwidth != "" {
			return errors.New("--remove cannot be combined with --disk-bandwidth: it removes everything. To remove only bandwidth, use --disk-bandwidth 0 --apply")
		}
		return nil
	}
	if err := o.validatePaths(); err != nil {
		return err
	}
	if o.LeastJava != 0 && (o.LeastJava < oldestJava || o.LeastJava > unixSocketsJava) {
		return fmt.Errorf("--least-java %d: give %d to %d", o.LeastJava, oldestJava, unixSocketsJava)
	}
	switch b := o.DiskBandwidth; {
	case b == "":
	case o.HadoopConf == "":
		return errors.New("--disk-bandwidth is for YARN: name its folder with --hadoop-conf")
	case b != "0" && !megabytes.MatchString(b):
		return fmt.Errorf("--disk-bandwidth %q: give MB/s as in 200M (1M to 999999M), or 0 to remove it", b)
	}
	return nil
}

// validatePaths checks the paths of the jar and the socket.
func (o Options) validatePaths() error {
	for _, p := range []struct{ flag, path string }{{"--agent-jar", o.AgentJar}, {"--socket", o.Socket}} {
		if !plainPath.MatchString(p.path) || filepath.Clean(p.path) != p.path {
			return fmt.Errorf("%s %q: give an absolute path of letters, digits and _ / . + @ %% -, as other characters split JVM options and class paths", p.flag, p.path)
		}
	}
	if len(o.Socket) > socketMax {
		return fmt.Errorf("--socket %s: %d bytes, and a Unix socket's path has at most %d", o.Socket, len(o.Socket), socketMax)
	}
	return nil
}

// Action is what a run does to a file.
type Action string

// The actions.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
	Keep   Action = "keep"
)

// FileReport is one file's part of a report.
type FileReport struct {
	Path   string `json:"path"`
	Action Action `json:"action"`
	// Diff is unified; empty if nothing changes.
	Diff string `json:"diff,omitempty"`
}

// Report lists the changes that a run made, or would make.
type Report struct {
	Files []FileReport `json:"files"`
	// Conflicts are settings of others that a run would overwrite; nothing is changed while there
	// are any.
	Conflicts []string `json:"conflicts,omitempty"`
	// Notes are other facts that the operator should know.
	Notes []string `json:"notes,omitempty"`
	// Restart lists the services that must be restarted for the changes to take effect.
	Restart []string `json:"restart,omitempty"`
	// Done reports whether files were written.
	Done bool `json:"done"`
}

// Changes reports whether a file is, or would be, changed.
func (r *Report) Changes() bool {
	return slices.ContainsFunc(r.Files, func(f FileReport) bool { return f.Action != Keep })
}

// ErrConflict is returned if others have set one of our settings, or have changed our text by hand.
var ErrConflict = errors.New("conflict")

// Plan returns what Apply would do or, with remove, what Remove would do. It changes nothing.
func Plan(o Options, remove bool) (*Report, error) { return run(o, remove, false) }

// Apply prepares the folders. If it fails, its report is complete up to the failure.
func Apply(o Options) (*Report, error) { return run(o, false, true) }

// Remove restores the folders as they were before Apply.
func Remove(o Options) (*Report, error) { return run(o, true, true) }

func run(o Options, remove, write bool) (*Report, error) {
	r := &Report{}
	if err := o.Validate(remove); err != nil {
		return r, err
	}
	var folders []*folder
	for _, f := range []struct {
		dir, kind string
		usual     []string
		targets   func(Options) []target
	}{{o.HadoopConf, "Hadoop", usualHadoop, hadoopTargets}, {o.SparkConf, "Spark", usualSpark, sparkTargets}, {o.TezConf, "Tez", usualTez, tezTargets}} {
		if f.dir == "" {
			continue
		}
		dir, err := openFolder(f.dir)
		if err != nil {
			return r, err
		}
		for _, other := range folders {
			if other.path == dir.path {
				return r, fmt.Errorf("%s cannot be the configuration folder of both %s and %s: each needs a folder of its own", dir.path, other.kind, f.kind)
			}
		}
		dir.kind, dir.wanted = f.kind, f.targets
		dir.disk.step = o.step
		folders = append(folders, dir)
		if write {
			release, err := lock(dir.path)
			if err != nil {
				return r, err
			}
			defer release()
		}
		if err := dir.plan(o, remove, r); err != nil {
			return r, err
		}
		if why := dir.stranger(f.kind, f.usual); why != "" && !remove {
			if !o.Force {
				r.Conflicts = append(r.Conflicts, why+"; correct the path (--force installs there anyway)")
			} else {
				r.Notes = append(r.Notes, why)
			}
		}
	}
	if !remove {
		if err := surroundings(o, folders, r); err != nil {
			return r, err
		}
	}
	if len(r.Conflicts) > 0 {
		return r, fmt.Errorf("%w: nothing was changed\n  %s", ErrConflict, strings.Join(r.Conflicts, "\n  "))
	}
	if !write {
		return r, nil
	}
	for _, dir := range folders {
		did, err := dir.write()
		r.Done = r.Done || did
		if err != nil {
			return r, fmt.Errorf("%w (run the same command again, or --remove: %s records what was changed so far)", err, filepath.Join(dir.path, StateFile))
		}
	}
	return r, nil
}

// surroundings checks conditions outside the files that are written.
func surroundings(o Options, folders []*folder, r *Report) error {
	jar := JarProblem(o.AgentJar)
	if jar != "" && o.HadoopConf != "" {
		r.Notes = append(r.Notes, jar+" on this machine: machines without it are not governed, and print a message when the daemon starts")
	}
	if jar != "" && o.SparkConf != "" {
		what := jar + " on this machine: a Spark executor does not start on a machine without it; put it there first"
		if o.Force {
			r.Notes = append(r.Notes, what)
		} else {
			r.Conflicts = append(r.Conflicts, what+" (--force if this is not a machine that runs executors)")
		}
	}
	if o.SparkConf != "" {
		r.Notes = append(r.Notes, "Spark needs "+o.AgentJar+" on every machine that runs drivers or executors of this folder")
	}
	if o.HadoopConf == "" {
		return nil
	}
	if bandwidthOf(folders[0].targets) != "" {
		yarn, err := siteOf(filepath.Join(o.HadoopConf, "yarn-site.xml"))
		if err != nil {
			return err
		}
		if e, ok := yarn.effective(schedulerClass); ok && !strings.HasSuffix(strings.TrimSpace(e.value), ".CapacityScheduler") {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is %s: only the CapacityScheduler knows how much %s an application holds", schedulerClass, e.value, bandwidthResource))
		}
		if e, ok := yarn.effective(schedulerStore); ok && !slices.Contains([]string{"", "file", "memory"}, strings.TrimSpace(e.value)) {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is %s: capacity-scheduler.xml is read only into an empty store; a store with settings needs yarn schedulerconf -global %s=%s before the ResourceManager is started again, or it does not start with %s",
				schedulerStore, e.value, resourceCalculator, dominantCalculator, bandwidthResource))
		}
	}
	for _, dir := range folders {
		for _, t := range dir.targets {
			found, err := elsewhere(o.HadoopConf, t, dir.kind)
			if err != nil {
				return err
			}
			r.conflicts(found, o.Force)
		}
	}
	return nil
}

// conflicts reports the conflicts that this run cannot overwrite.
func (r *Report) conflicts(found []conflict, force bool) {
	for _, c := range found {
		switch {
		case c.hard:
			r.Conflicts = append(r.Conflicts, c.what)
		case force:
			r.Notes = append(r.Notes, "overwritten: "+c.what)
		default:
			r.Conflicts = append(r.Conflicts, c.what+" (--force overwrites it, --remove puts it back)")
		}
	}
}

// JarProblem returns what is wrong with the agent's jar on this machine, or an empty string.
func JarProblem(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return path + " is not there"
	}
	defer f.Close()
	magic := make([]byte, 2)
	if _, err := f.Read(magic); err != nil || string(magic) != "PK" {
		return path + " is not a jar"
	}
	return ""
}
