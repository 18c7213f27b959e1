// Package hbase runs a real, unmodified HBase on a cluster of package hadoop: a master, a RegionServer, and HBase's own
// PerformanceEvaluation.
//
// A RegionServer is the usual service that lives long on a cluster and reads few bytes at a time: what it reads from and
// writes to HDFS decides how long its users wait. For HDFS it is a client without an application's name.
package hbase

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"penstock/lab/hadoop"
	"penstock/lab/ports"
	"penstock/lab/process"
)

// Config describes an HBase. The zero value of a field is its default.
type Config struct {
	RunDir    string // private; its folders conf and tmp are replaced
	Lib       string // from Fetch
	Cluster   *hadoop.Cluster
	ZooKeeper string // host:port
	HeapMB    int    // heap of the RegionServer; default 512
	// Settings are added to hbase-site.xml.
	Settings map[string]string
	Progress func(format string, args ...any)
}

// HBase is a running HBase. Its methods may be called from any goroutine, except for Stop.
type HBase struct {
	cfg          Config
	web          string // web address of the RegionServer
	master       *process.Process
	regionServer *process.Process
}

// Bounds of the start of HBase, and of the end of each server.
const (
	startWait = 3 * time.Minute
	stopWait  = 30 * time.Second
)

// Start starts the master and the RegionServer, and returns when HBase is ready.
func Start(ctx context.Context, cfg Config) (_ *HBase, err error) {
	if !filepath.IsAbs(cfg.RunDir) {
		return nil, fmt.Errorf("hbase: RunDir %q must be an absolute path", cfg.RunDir)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	if cfg.HeapMB == 0 {
		cfg.HeapMB = 512
	}
	h := &HBase{cfg: cfg}
	if err := h.configure(); err != nil {
		return nil, fmt.Errorf("hbase: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	begin := time.Now()
	if h.master, err = h.java("hbase-master", 256, "org.apache.hadoop.hbase.master.HMaster", "start"); err != nil {
		return nil, err
	}
	if h.regionServer, err = h.java("hbase-regionserver", cfg.HeapMB, "org.apache.hadoop.hbase.regionserver.HRegionServer", "start"); err == nil {
		_, err = h.master.Find(ctx, regexp.MustCompile(`Master has completed initialization`))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hbase: %w", err), h.Stop())
	}
	cfg.Progress("  HBase ready after %.1f s: %s", time.Since(begin).Seconds(), h.web)
	return h, nil
}

// RegionServerPID returns the RegionServer's process id.
func (h *HBase) RegionServerPID() int { return h.regionServer.PID() }

// RegionServerURL returns the web address of the RegionServer, for example for its MBeans.
func (h *HBase) RegionServerURL() string { return h.web }

func (h *HBase) confDir() string { return filepath.Join(h.cfg.RunDir, "conf") }

func (h *HBase) configure() error {
	host, port, err := net.SplitHostPort(h.cfg.ZooKeeper)
	if err != nil {
		return fmt.Errorf("ZooKeeper %q: give host:port: %w", h.cfg.ZooKeeper, err)
	}
	p, err := ports.Free(4)
	if err != nil {
		return err
	}
	h.web = "http://127.0.0.1:" + strconv.Itoa(p[3])
	settings := map[string]string{
		"hbase.rootdir":                                h.cfg.Cluster.DefaultFS() + "/hbase",
		"hbase.cluster.distributed":                    "true",
		"hbase.tmp.dir":                                filepath.Join(h.cfg.RunDir, "tmp"),
		"hbase.zookeeper.quorum":                       host,
		"hbase.zookeeper.property.clientPort":          port,
		"hbase.master.hostname":                        "127.0.0.1",
		"hbase.master.ipc.address":                     "127.0.0.1",
		"hbase.master.port":                            strconv.Itoa(p[0]),
		"hbase.master.info.bindAddress":                "127.0.0.1",
		"hbase.master.info.port":                       strconv.Itoa(p[1]),
		"hbase.regionserver.hostname":                  "127.0.0.1",
		"hbase.regionserver.ipc.address":               "127.0.0.1",
		"hbase.regionserver.port":                      strconv.Itoa(p[2]),
		"hbase.regionserver.info.bindAddress":          "127.0.0.1",
		"hbase.regionserver.info.port":                 strconv.Itoa(p[3]),
		"hbase.regionserver.handler.count":             "16",
		"hbase.master.start.timeout.localHBaseCluster": strconv.FormatInt(startWait.Milliseconds(), 10),
	}
	maps.Copy(settings, h.cfg.Settings)
	for _, d := range []string{h.confDir(), filepath.Join(h.cfg.RunDir, "tmp")} {
		if err := errors.Join(os.RemoveAll(d), os.MkdirAll(d, 0o755)); err != nil {
			return err
		}
	}
	// The jars lack the folders of the web pages, which the servers require.
	for _, app := range []string{"master", "regionserver", "static"} {
		if err := os.MkdirAll(filepath.Join(h.confDir(), "hbase-webapps", app), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(h.confDir(), "hbase-site.xml"), hadoop.SiteXML(settings), 0o644)
}

func (h *HBase) java(name string, heapMB int, class string, args ...string) (*process.Process, error) {
	return h.cfg.Cluster.Start(hadoop.Program{Name: name, HeapMB: heapMB, ClassPath: []string{h.confDir(), filepath.Join(h.cfg.Lib, "*")}, Class: class, Args: args})
}

// Operation is a test of PerformanceEvaluation.
type Operation string

// The tests that are used here.
const (
	RandomRead  Operation = "randomRead"
	RandomWrite Operation = "randomWrite"
	Scan        Operation = "scan"
)

// Evaluation is a run of PerformanceEvaluation in one JVM.
type Evaluation struct {
	Operation Operation
	Rows      int // per client; with RandomRead, the keys are of 0 to Rows times Clients
	Clients   int // threads; default 1
	Options   []string
}

// Times are the durations of one client's operations.
type Times struct {
	Count                    int64
	Mean, P50, P95, P99, Max time.Duration
}

// evaluations counts those of all clusters, because a cluster's next HBase writes its logs to the same folder.
var evaluations atomic.Int64

// Evaluate runs PerformanceEvaluation to its end and returns the times of each client.
func (h *HBase) Evaluate(ctx context.Context, e Evaluation) ([]Times, error) {
	args := append([]string{"--nomapred", "--latency", fmt.Sprintf("--rows=%d", e.Rows)}, e.Options...)
	args = append(args, string(e.Operation), strconv.Itoa(max(1, e.Clients)))
	name := fmt.Sprintf("evaluation-%d-%s", evaluations.Add(1), e.Operation)
	p, err := h.java(name, 256, "org.apache.hadoop.hbase.PerformanceEvaluation", args...)
	if err != nil {
		return nil, err
	}
	err = p.Wait(ctx)
	p.Kill() // if ctx has ended first
	if err != nil {
		return nil, fmt.Errorf("hbase: %s: %w", name, err)
	}
	text, err := os.ReadFile(p.Log())
	if err != nil {
		return nil, err
	}
	all, err := parseTimes(string(text))
	if err == nil && len(all) != max(1, e.Clients) {
		err = fmt.Errorf("hbase: %s has the times of %d clients", p.Log(), len(all))
	}
	return all, err
}

var (
	latencyLine = regexp.MustCompile(`Latency \(us\) : (mean=.*)`)
	countLine   = regexp.MustCompile(`Num measures \(latency\) : (\d+)`)
)

// parseTimes returns the times in the output of PerformanceEvaluation, a line for each client.
func parseTimes(output string) (all []Times, err error) {
	lines := latencyLine.FindAllStringSubmatch(output, -1)
	counts := countLine.FindAllStringSubmatch(output, -1)
	if len(lines) != len(counts) {
		return nil, fmt.Errorf("hbase: %d clients have times, and %d have counts", len(lines), len(counts))
	}
	for i, line := range lines {
		t := Times{}
		if t.Count, err = strconv.ParseInt(counts[i][1], 10, 64); err != nil {
			return nil, err
		}
		fields := map[string]*time.Duration{"mean": &t.Mean, "50th": &t.P50, "95th": &t.P95, "99th": &t.P99, "max": &t.Max}
		for field := range strings.SplitSeq(line[1], ", ") {
			name, value, _ := strings.Cut(field, "=")
			into := fields[name]
			if into == nil {
				continue
			}
			micros, err := strconv.ParseFloat(strings.ReplaceAll(value, ",", ""), 64)
			if err != nil {
				return nil, fmt.Errorf("hbase: %q: %w", field, err)
			}
			*into = time.Duration(micros * float64(time.Microsecond))
			delete(fields, name)
		}
		if len(fields) > 0 {
			return nil, fmt.Errorf("hbase: the times %q lack %v", line[1], slices.Sorted(maps.Keys(fields)))
		}
		all = append(all, t)
	}
	return all, nil
}

// Stop ends the servers. The RegionServer writes what it has in memory to HDFS. If it does not end in time, the data stays in
// its log.
func (h *HBase) Stop() error {
	h.regionServer.Stop(stopWait)
	h.master.Stop(stopWait)
	return nil
}
