// Package spark runs a real, unmodified Spark together with a cluster of package hadoop.
// Applications run on YARN, or on a standalone master with one worker that this package starts.
//
// All files are in one private run folder, and all servers listen on 127.0.0.1. The daemons are
// recorded in the run folder's ledger and die with their parent. The worker is the first process of
// a PID namespace, so its executors die with the worker.
package spark

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	testports "penstock/lab/ports"
	"penstock/lab/process"
	"penstock/ops/install"
)

// Config describes where applications run.
type Config struct {
	RunDir  string // private; its folders conf, logs and work are replaced
	Home    string // from Fetch
	Cluster *hadoop.Cluster
	// Machine is where drivers of applications on YARN run; default: this process's machine.
	Machine hadoop.Machine
	// Java is the home of the Java runtime of drivers, and of a standalone master and worker; default: JAVA_HOME or,
	// if that is not set, the java on the PATH. Containers on YARN run on the cluster's Java.
	Java string
	// Standalone runs applications on a master and a worker that this package starts, instead of YARN.
	Standalone bool
	// LocalDir is the folder in which a standalone worker's executors keep shuffle and spill files;
	// default RunDir/work. On YARN, the NodeManager's folders are used instead.
	LocalDir string
	// Governed prepares the configuration as `penstock install` does; nil: the configuration does not contain Penstock.
	Governed *hadoop.Governed
	// Settings are added to spark-defaults.conf.
	Settings map[string]string
	Progress func(format string, args ...any)
}

// Spark accepts applications. Its methods may be called from any goroutine.
type Spark struct {
	cfg    Config
	book   *ledger.Ledger
	master string // URL
	web    string // web address of the standalone master
	procs  []*process.Process

	mu   sync.Mutex
	seq  int
	apps []*process.Process
}

// startWait bounds the start of a standalone master and its worker.
const startWait = 2 * time.Minute

// Start prepares the configuration. For a standalone cluster it also starts the master and the
// worker, and returns when the worker is registered.
func Start(ctx context.Context, cfg Config) (*Spark, error) {
	if !filepath.IsAbs(cfg.RunDir) {
		return nil, fmt.Errorf("spark: RunDir %q must be an absolute path", cfg.RunDir)
	}
	if cfg.LocalDir == "" {
		cfg.LocalDir = filepath.Join(cfg.RunDir, "work")
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	s := &Spark{cfg: cfg, master: "yarn"}
	for _, d := range []string{s.ConfDir(), s.logDir(), s.eventDir(), cfg.LocalDir} {
		if err := errors.Join(os.RemoveAll(d), os.MkdirAll(d, 0o755)); err != nil {
			return nil, err
		}
	}
	if err := s.configure(); err != nil {
		return nil, err
	}
	var err error
	if s.book, err = ledger.Open(cfg.RunDir); err != nil {
		return nil, err
	}
	if cfg.Standalone {
		if err := s.startDaemons(ctx); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// ConfDir returns the folder of the configuration, for SPARK_CONF_DIR.
func (s *Spark) ConfDir() string { return filepath.Join(s.cfg.RunDir, "conf") }

func (s *Spark) eventDir() string { return filepath.Join(s.cfg.RunDir, "events") }
func (s *Spark) logDir() string   { return filepath.Join(s.cfg.RunDir, "logs") }

// WorkDir returns the folder, below LocalDir, in which a standalone worker keeps its executors'
// folders.
func WorkDir(localDir string) string { return filepath.Join(localDir, "apps") }

const log4j = `rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
`

func (s *Spark) configure() error {
	settings := map[string]string{
		"spark.driver.host":        s.address(),
		"spark.driver.bindAddress": s.address(),
		"spark.ui.enabled":         "false",
		// The jars are on every machine of this cluster.
		"spark.yarn.jars":                               "local:" + filepath.Join(s.cfg.Home, "jars", "*"),
		"spark.yarn.am.memory":                          "512m",
		"spark.driver.memory":                           "1g",
		"spark.executor.memory":                         "1g",
		"spark.yarn.submit.waitAppCompletion":           "true",
		serviceEnabled:                                  "false",
		"spark.eventLog.enabled":                        "true",
		"spark.eventLog.dir":                            "file:" + s.eventDir(),
		"spark.eventLog.compress":                       "false",
		"spark.eventLog.rolling.enabled":                "false",
		"spark.local.dir":                               s.cfg.LocalDir,
		"spark.hadoop.dfs.client.use.datanode.hostname": "false",
		// The serial collector needs less memory, of which test machines have little.
		"spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
	}
	for name, options := range map[string]string{"driver": "", "yarn.am": "", "executor": settings["spark.executor.extraJavaOptions"]} {
		if all := strings.TrimSpace(options + " " + strings.Join(s.cfg.Cluster.KerberosOptions(), " ")); all != "" {
			settings["spark."+name+".extraJavaOptions"] = all
		}
	}
	if principal, keytab := s.cfg.Cluster.KerberosUser(); principal != "" {
		settings["spark.kerberos.principal"], settings["spark.kerberos.keytab"] = principal, keytab
	}
	maps.Copy(settings, s.cfg.Settings)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s %s\n", k, settings[k])
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(s.ConfDir(), "spark-defaults.conf"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(s.ConfDir(), "log4j2.properties"), []byte(log4j), 0o644),
	); err != nil {
		return err
	}
	g := s.cfg.Governed
	if g == nil {
		return nil
	}
	r, err := install.Apply(install.Options{SparkConf: s.ConfDir(), AgentJar: g.AgentJar, Socket: g.Socket})
	if err != nil {
		return fmt.Errorf("prepare the configuration: %w: %s", err, strings.Join(r.Conflicts, "; "))
	}
	return nil
}

// address returns the address of drivers.
func (s *Spark) address() string {
	if s.cfg.Machine != nil {
		return s.cfg.Machine.IP()
	}
	return "127.0.0.1"
}

// env returns an environment without variables of the caller's own Spark or Hadoop.
func (s *Spark) env() []string {
	env := []string{
		"SPARK_HOME=" + s.cfg.Home, "SPARK_CONF_DIR=" + s.ConfDir(), "SPARK_LOCAL_IP=" + s.address(), "SPARK_NO_DAEMONIZE=1",
		"HADOOP_CONF_DIR=" + s.cfg.Cluster.ClientConfDir(), "PYSPARK_PYTHON=python3",
		"SPARK_WORKER_DIR=" + WorkDir(s.cfg.LocalDir), "SPARK_LOCAL_DIRS=" + s.cfg.LocalDir,
	}
	for _, name := range []string{"PATH", "HOME", "LANG", "USER", "LOGNAME", "JAVA_HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if s.cfg.Java != "" {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "JAVA_HOME=") })
		env = append(env, "JAVA_HOME="+s.cfg.Java)
	}
	if !s.cfg.Standalone {
		// YARN sets this variable itself, and a worker's value would have precedence.
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "SPARK_LOCAL_DIRS=") })
	}
	return env
}

func (s *Spark) spawn(name string, ownPIDs bool, argv ...string) (*process.Process, error) {
	if ownPIDs {
		// /proc must show the process ids of the new namespace.
		argv = append([]string{"unshare", "--mount", "--propagation", "slave", "--mount-proc"}, argv...)
	}
	return process.Start(process.Options{Book: s.book, Name: name, Log: filepath.Join(s.logDir(), name+".log"),
		Dir: s.cfg.RunDir, Env: s.env(), OwnPIDs: ownPIDs}, argv...)
}

// Master returns the master's URL, for spark-submit --master.
func (s *Spark) Master() string { return s.master }

// MasterPage returns the address of the standalone master's web page.
func (s *Spark) MasterPage() string { return s.web }

func (s *Spark) startDaemons(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	ports, err := testports.Free(2)
	if err != nil {
		return err
	}
	s.master = fmt.Sprintf("spark://127.0.0.1:%d", ports[0])
	s.web = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	s.cfg.Progress("%s: starting a master and a worker", filepath.Base(s.cfg.Home))
	start := func(name, ready string, ownPIDs bool, argv ...string) error {
		p, err := s.spawn(name, ownPIDs, append([]string{filepath.Join(s.cfg.Home, "bin", "spark-class")}, argv...)...)
		if err != nil {
			return err
		}
		s.procs = append(s.procs, p)
		_, err = p.Find(ctx, regexp.MustCompile(ready))
		return err
	}
	if err := start("master", "I have been elected leader", false, "org.apache.spark.deploy.master.Master",
		"--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--webui-port", strconv.Itoa(ports[1])); err != nil {
		return err
	}
	return start("worker", "Successfully registered with master", os.Geteuid() == 0, "org.apache.spark.deploy.worker.Worker",
		"--host", "127.0.0.1", "--webui-port", "0", "--cores", "8", "--memory", "8g", "--work-dir", WorkDir(s.cfg.LocalDir), s.master)
}

// Job is a Python program to submit.
type Job struct {
	Name      string // used in the name of its log
	Script    string // path
	Args      []string
	Queue     string // on YARN only
	Executors int    // default 2
	Cores     int    // per executor; default 1
	CPUs      string // taskset list for the driver and, on YARN, its containers; empty: all
	Cgroup    string // folder of the cgroup (cgroup v1) that the containers on YARN join
	Settings  map[string]string
}

// App is a submitted application.
type App struct {
	ID  string // application_... or app-...
	Log string // the driver's output

	p *process.Process
}

var submitted = regexp.MustCompile(`Submitted application (application_\d+_\d+)|app ID (app-\d+-\d+)`)

// Submit starts the driver, outside of any container. It returns when the
// application has an id.
func (s *Spark) Submit(ctx context.Context, job Job) (*App, error) {
	s.mu.Lock()
	s.seq++
	name := fmt.Sprintf("app-%d-%s", s.seq, job.Name)
	s.mu.Unlock()
	var argv []string
	if job.CPUs != "" {
		argv = []string{"taskset", "-c", job.CPUs}
	}
	argv = append(argv, filepath.Join(s.cfg.Home, "bin", "spark-submit"), "--master", s.master, "--deploy-mode", "client", "--name", job.Name)
	executors, cores := max(job.Executors, 2), max(job.Cores, 1)
	settings := map[string]string{
		"spark.executor.instances": strconv.Itoa(executors), "spark.executor.cores": strconv.Itoa(cores),
		"spark.cores.max": strconv.Itoa(executors * cores),
	}
	if job.Queue != "" {
		settings["spark.yarn.queue"] = job.Queue
	}
	if !s.cfg.Standalone {
		home, err := s.cfg.Cluster.JavaHome(job.CPUs, job.Cgroup)
		if err != nil {
			return nil, err
		}
		settings["spark.executorEnv.JAVA_HOME"], settings["spark.yarn.appMasterEnv.JAVA_HOME"] = home, home
	}
	maps.Copy(settings, job.Settings)
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		argv = append(argv, "--conf", k+"="+settings[k])
	}
	argv = append(append(argv, job.Script), job.Args...)
	if s.cfg.Machine != nil {
		argv = s.cfg.Machine.Args(argv...)
	}
	p, err := s.spawn(name, false, argv...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.apps = append(s.apps, p)
	s.mu.Unlock()
	id, err := p.Find(ctx, submitted)
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &App{ID: id[1] + id[2], Log: p.Log(), p: p}, nil
}

// Wait returns when the driver has ended.
func (a *App) Wait(ctx context.Context) error { return a.p.Wait(ctx) }

// Report returns the first match of pattern in the output of a driver that has ended.
func (a *App) Report(pattern *regexp.Regexp) (string, error) {
	text, err := os.ReadFile(a.Log)
	if err != nil {
		return "", err
	}
	found := pattern.Find(text)
	if found == nil {
		return "", fmt.Errorf("%s has printed no report: see %s", a.ID, a.Log)
	}
	return string(found), nil
}

// Kill ends the driver; its executors end with it.
func (a *App) Kill() { a.p.Kill() }

// Stop ends the drivers that are still running, and the standalone cluster.
func (s *Spark) Stop() error {
	s.mu.Lock()
	apps := s.apps
	s.mu.Unlock()
	for _, p := range apps {
		p.Kill()
	}
	for _, p := range slices.Backward(s.procs) {
		p.Stop(5 * time.Second) // a SIGKILL after that does no harm: no data of the process is needed any more
	}
	s.procs = nil
	return s.book.Close()
}
