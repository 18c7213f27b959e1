package hadoop

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	osuser "os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/poll"
	"penstock/lab/process"
)

// Kind is an example or test job of the Hadoop distribution.
type Kind string

// The jobs of IBIS, section 7.2.
const (
	WordCount    Kind = "wordcount"
	TeraGen      Kind = "teragen"
	TeraSort     Kind = "terasort"
	TeraValidate Kind = "teravalidate"
)

// Sort is the Sort of the disk contention paper (section V): it sorts the lines of text files.
const Sort Kind = "sort"

// TestDFSIO is Hadoop's own benchmark of HDFS: each map writes or reads a file.
const (
	TestDFSIOWrite Kind = "testdfsio-write"
	TestDFSIORead  Kind = "testdfsio-read"
)

// PageRank is an iteration of the PageRank of package pagerank, whose classes must be in Config.Jars.
const PageRank Kind = "pagerank"

var kinds = []Kind{WordCount, TeraGen, TeraSort, TeraValidate, Sort, TestDFSIOWrite, TestDFSIORead, PageRank}

// Job describes one submission.
type Job struct {
	Kind      Kind
	Input     string // HDFS path; not for TeraGen and TestDFSIOWrite. TestDFSIORead: the Output of a TestDFSIOWrite job
	Output    string // HDFS path, must not exist; TestDFSIORead writes into its Input instead
	Rows      int64  // TeraGen: rows of 100 bytes
	Maps      int    // TeraGen: number of maps, TestDFSIO: number of files; default 2. Other jobs have one map per block of input
	FileBytes int64  // TestDFSIO: bytes of each file
	Reduces   int    // WordCount, TeraSort, Sort, PageRank: default 1
	Queue     string // QueueProtected or QueueAggressor, or one of Config.Queues
	CPUs      string // taskset list for the job's client and all of its containers; empty: all
	Cgroup    string // folder of the containers' cgroup (cgroup v1); empty: the NodeManager's cgroup
	User      string // the user that submits it; empty: the user that runs the cluster or, with Kerberos, Kerberos.User
	// Settings become -D options of the submission.
	Settings map[string]string
}

// Status is an application's status from the ResourceManager.
type Status struct {
	State       string // NEW ... ACCEPTED, RUNNING, FINISHED, FAILED, KILLED
	FinalStatus string // UNDEFINED, SUCCEEDED, FAILED, KILLED
	Progress    float64
	Containers  int           // running containers; with an MRAppMaster, the first is not a task
	Started     time.Time     // submission, as accepted by the ResourceManager
	Finished    time.Time     // zero while it runs
	Elapsed     time.Duration // the ResourceManager's elapsedTime, in whole milliseconds
	Diagnostics string
}

// Ended reports whether the application has ended, successfully or not.
func (s Status) Ended() bool {
	return s.State == "FINISHED" || s.State == "FAILED" || s.State == "KILLED"
}

// App is a submitted application.
type App struct {
	ID  string // application_<13 digits>_<number>
	Job Job
	Log string // the client's output: progress, and counters at the end

	c      *Cluster
	client *process.Process
}

// Submit starts a job's client and returns as soon as the ResourceManager has assigned an
// application id. It does not check the input: if the input is missing, the job fails here or in
// Wait, depending on Hadoop.
func (c *Cluster) Submit(ctx context.Context, job Job) (*App, error) {
	class, args, err := job.command()
	if err != nil {
		return nil, err
	}
	if err := c.cfg.checkQueue(job.Queue); err != nil {
		return nil, err
	}
	home, err := c.JavaHome(job.CPUs, job.Cgroup)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("job-%d-%s", c.runs.Add(1), job.Kind)
	settings := properties{
		"mapreduce.job.queuename":   job.Queue,
		"mapreduce.map.env":         "JAVA_HOME=" + home,
		"mapreduce.reduce.env":      "JAVA_HOME=" + home,
		"yarn.app.mapreduce.am.env": "JAVA_HOME=" + home,
		"mapreduce.job.maps":        strconv.Itoa(cmp.Or(job.Maps, 2)),
		"mapreduce.job.reduces":     strconv.Itoa(cmp.Or(job.Reduces, 1)),
	}
	if job.Kind == WordCount {
		// A small sort buffer fits into the CPU's caches and is emptied often. With the default of
		// 100 MB, a map alternates between reading at the disk's full rate and sorting without
		// reading, and needs a third more CPU time.
		settings["mapreduce.task.io.sort.mb"] = "16"
		// WordCount's reduce only adds up a few thousand numbers.
		settings["mapreduce.reduce.java.opts"] = c.taskOpts(c.cfg.TaskHeapMB) + " " + quick
	}
	if job.Kind == TeraSort || job.Kind == Sort || job.Kind == PageRank {
		// The maps' outputs are large compared with a small task's heap. Outputs that do not fit
		// into a third of the heap go to the local disk, as on a real cluster.
		settings["mapreduce.reduce.shuffle.input.buffer.percent"] = "0.3"
	}
	client := jvm{name: name, conf: "client", opts: []string{quick}, cpus: job.CPUs, class: class}
	if job.Kind == TestDFSIOWrite || job.Kind == TestDFSIORead {
		settings["test.build.data"] = job.dfsioDir()
		// TestDFSIO and its dependencies are in jars that must not be on the class path of any other
		// program.
		jars := filepath.Join(c.cfg.Lib, "*")
		tests := filepath.Join(filepath.Dir(c.cfg.Lib), testsFolder, "*")
		settings["mapreduce.application.classpath"] = jars + "," + tests
		if g := c.cfg.Governed; g != nil {
			settings["mapreduce.application.classpath"] += "," + g.AgentJar
		}
		client.opts = append(client.opts, "-cp", c.ClientConfDir()+":"+jars+":"+tests)
		// The client writes its own results to this file, and not to its working directory.
		args = append(args, "-resFile", filepath.Join(c.LogDir(), name+".results"))
	}
	maps.Copy(settings, job.Settings)
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		client.args = append(client.args, "-D", k+"="+settings[k])
	}
	client.args = append(client.args, args...)
	client.env = c.cfg.userEnv(job.User)
	p, err := c.java(client)
	if err != nil {
		return nil, err
	}
	app := &App{Job: job, Log: p.Log(), c: c, client: p}
	c.mu.Lock()
	c.apps = append(c.apps, app)
	c.mu.Unlock()
	id, err := p.Find(ctx, submitted)
	if err != nil {
		p.Kill()
		return nil, err
	}
	app.ID = id[1]
	return app, nil
}

var submitted = regexp.MustCompile(`Submitted application (application_\d+_\d+)`)

// command returns the client's main class and arguments.
func (j Job) command() (class string, args []string, err error) {
	const examples = "org.apache.hadoop.examples."
	if j.Output == "" && j.Kind != TestDFSIORead {
		return "", nil, fmt.Errorf("hadoop: %s needs an output path", j.Kind)
	}
	switch j.Kind {
	case TeraGen:
		if j.Rows < 1 {
			return "", nil, fmt.Errorf("hadoop: teragen needs at least one row, got %d", j.Rows)
		}
		return examples + "terasort.TeraGen", []string{strconv.FormatInt(j.Rows, 10), j.Output}, nil
	case TestDFSIOWrite, TestDFSIORead:
		if j.FileBytes < 1 || j.dfsioDir() == "" {
			return "", nil, fmt.Errorf("hadoop: %s needs a path and FileBytes above 0, got %d", j.Kind, j.FileBytes)
		}
		return "org.apache.hadoop.fs.TestDFSIO", []string{strings.TrimPrefix(string(j.Kind), "testdfsio"),
			"-nrFiles", strconv.Itoa(cmp.Or(j.Maps, 2)), "-size", fmt.Sprintf("%dB", j.FileBytes)}, nil
	case WordCount:
		class = examples + "WordCount"
	case TeraSort:
		class = examples + "terasort.TeraSort"
	case TeraValidate:
		class = examples + "terasort.TeraValidate"
	case Sort:
		class = examples + "Sort"
	case PageRank:
		class = "PageRank"
	default:
		return "", nil, fmt.Errorf("hadoop: unknown job %q; use one of %q", j.Kind, kinds)
	}
	if j.Input == "" {
		return "", nil, fmt.Errorf("hadoop: %s needs an input path", j.Kind)
	}
	if j.Kind == Sort {
		// By default Sort reads the binary files of RandomWriter. Without a tab in it, a line is a key.
		const formats, text = "org.apache.hadoop.mapreduce.lib.", "org.apache.hadoop.io.Text"
		return class, []string{"-r", strconv.Itoa(cmp.Or(j.Reduces, 1)), "-inFormat", formats + "input.KeyValueTextInputFormat",
			"-outFormat", formats + "output.TextOutputFormat", "-outKey", text, "-outValue", text, j.Input, j.Output}, nil
	}
	return class, []string{j.Input, j.Output}, nil
}

// Application returns an application that was submitted in another way, for example by Spark. It
// has a status and can be awaited and killed, but it has no client process here.
func (c *Cluster) Application(id string) *App { return &App{ID: id, c: c} }

// Status returns the application's status from the ResourceManager.
func (a *App) Status(ctx context.Context) (Status, error) {
	base, err := a.c.activeURL(ctx)
	if err != nil {
		return Status{}, err
	}
	var doc struct {
		App struct {
			State, FinalStatus, Diagnostics        string
			Progress                               float64
			StartedTime, FinishedTime, ElapsedTime int64
			RunningContainers                      int // -1 when there are none
		}
	}
	if err := a.c.askResourceManager(ctx, base+"/ws/v1/cluster/apps/"+a.ID, &doc); err != nil {
		return Status{}, err
	}
	s := Status{State: doc.App.State, FinalStatus: doc.App.FinalStatus, Progress: doc.App.Progress, Diagnostics: doc.App.Diagnostics,
		Containers: max(0, doc.App.RunningContainers),
		Started:    time.UnixMilli(doc.App.StartedTime), Elapsed: time.Duration(doc.App.ElapsedTime) * time.Millisecond}
	if doc.App.FinishedTime > 0 {
		s.Finished = time.UnixMilli(doc.App.FinishedTime)
	}
	return s, nil
}

// Wait returns when the application has ended, according to the ResourceManager. If the application
// failed or was killed, Wait returns an error with the diagnostics. The status is valid in both
// cases. Wait does not wait for the client (see Counters).
func (a *App) Wait(ctx context.Context) (Status, error) {
	var s Status
	err := poll.Until(ctx, 200*time.Millisecond, func() (_ bool, err error) {
		if s, err = a.Status(ctx); err != nil && ctx.Err() == nil {
			return false, a.c.Check()
		}
		return err == nil && s.Ended(), nil
	})
	if err != nil {
		return s, fmt.Errorf("wait for %s: %w", a.ID, err)
	}
	if s.FinalStatus != "SUCCEEDED" {
		err = fmt.Errorf("%s %s ended %s: %s", a.Job.Kind, a.ID, s.FinalStatus, strings.TrimSpace(s.Diagnostics))
		if a.client != nil {
			err = fmt.Errorf("%w; the client's last lines (%s):\n%s", err, a.Log, process.Tail(a.Log, 20))
		}
	}
	return s, err
}

// Kill ends the application and its client. It returns when the ResourceManager reports the
// application as ended.
func (a *App) Kill(ctx context.Context) error {
	defer a.client.Kill()
	return poll.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		s, err := a.Status(ctx)
		if err != nil || s.Ended() {
			return true, err
		}
		url := a.c.ResourceManagerURL() + "/ws/v1/cluster/apps/" + a.ID + "/state?user.name=" + user()
		if _, err := fetch(ctx, a.c.resourceManagerClient(), http.MethodPut, url, strings.NewReader(`{"state":"KILLED"}`)); err != nil {
			return false, fmt.Errorf("kill %s: %w", a.ID, err)
		}
		return false, nil
	})
}

// Counters waits for the job's client and returns the counters that it printed, by their printed
// names, such as "HDFS: Number of bytes read" and "Map input records". For a failed job it returns
// nil.
func (a *App) Counters(ctx context.Context) (map[string]int64, error) {
	select {
	case <-a.client.Exited():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out, err := os.ReadFile(a.Log)
	if err != nil {
		return nil, err
	}
	return parseCounters(out), nil
}

var counter = regexp.MustCompile(`(?m)^\t\t(.+)=(\d+)$`)

func parseCounters(out []byte) map[string]int64 {
	var counters map[string]int64
	for _, m := range counter.FindAllSubmatch(out, -1) {
		if n, err := strconv.ParseInt(string(m[2]), 10, 64); err == nil {
			if counters == nil {
				counters = map[string]int64{}
			}
			counters[string(m[1])] = n
		}
	}
	return counters
}

// user returns the name of the user that runs the cluster.
func user() string {
	if u, err := osuser.Current(); err == nil {
		return u.Username
	}
	return "root"
}
