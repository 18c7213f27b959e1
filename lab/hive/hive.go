// Package hive runs a real, unmodified Hive on Tez on a cluster of package hadoop. Hive's service and its metastore are
// embedded in the process of its client. Each session is an application of YARN: Tez starts an application master, which
// runs the graphs of the session's queries.
//
// A task of Tez reads what a task on the same node has written for it directly from the local disk, without the NodeManager.
package hive

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"penstock/lab/client"
	"penstock/lab/hadoop"
	"penstock/lab/process"
	"penstock/ops/install"
)

// Config describes a Hive. The zero value of a field is its default.
type Config struct {
	RunDir    string // absolute and private; it is replaced
	Libraries Libraries
	Cluster   *hadoop.Cluster
	Governed  *hadoop.Governed // nil: the tasks run without Penstock
}

// Hive is a Hive whose programs run when statements are executed. Its methods may be called from one goroutine at a time.
type Hive struct {
	cfg     Config
	classes string
	runs    int
}

//go:embed Statements.java
var source []byte

// containerMB is the size of each container, which is the cluster's smallest.
const containerMB = 512

// opened are the packages of the JDK that Hive needs, in addition to those that Hadoop needs.
var opened = []string{"java.lang.invoke", "java.lang.reflect", "java.math", "java.text", "java.time", "java.util.concurrent.atomic", "java.util.regex"}

// New prepares a Hive with an empty metastore.
func New(ctx context.Context, cfg Config) (*Hive, error) {
	if !filepath.IsAbs(cfg.RunDir) {
		return nil, fmt.Errorf("hive: RunDir %q must be an absolute path", cfg.RunDir)
	}
	h := &Hive{cfg: cfg, classes: filepath.Join(cfg.RunDir, "classes")}
	if err := errors.Join(os.RemoveAll(cfg.RunDir), os.MkdirAll(h.confDir(), 0o755)); err != nil {
		return nil, fmt.Errorf("hive: %w", err)
	}
	for name, settings := range map[string]map[string]string{"hive-site.xml": h.hiveSettings(), "tez-site.xml": h.tezSettings()} {
		if err := os.WriteFile(filepath.Join(h.confDir(), name), hadoop.SiteXML(settings), 0o644); err != nil {
			return nil, fmt.Errorf("hive: %w", err)
		}
	}
	if g := cfg.Governed; g != nil {
		r, err := install.Apply(install.Options{TezConf: h.confDir(), AgentJar: g.AgentJar, Socket: g.Socket})
		if err != nil {
			return nil, fmt.Errorf("hive: prepare the configuration: %w: %s", err, strings.Join(r.Conflicts, "; "))
		}
	}
	if err := client.CompileSources(ctx, cfg.Libraries.Hive, h.classes, map[string][]byte{"Statements.java": source}); err != nil {
		return nil, fmt.Errorf("hive: %w", err)
	}
	return h, nil
}

func (h *Hive) confDir() string { return filepath.Join(h.cfg.RunDir, "conf") }

// opens returns the JVM options with which Hive runs on Java 17.
func opens() (options []string) {
	for _, p := range opened {
		options = append(options, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	return options
}

// containerOptions returns the JVM options of the containers of Tez.
func (h *Hive) containerOptions(heapMB int) string {
	return strings.Join(append([]string{h.cfg.Cluster.TaskOptions(heapMB)}, opens()...), " ")
}

func (h *Hive) hiveSettings() map[string]string {
	dir := func(name string) string { return filepath.Join(h.cfg.RunDir, name) }
	return map[string]string{
		"hive.execution.engine":                        "tez",
		"hive.metastore.uris":                          "",
		"javax.jdo.option.ConnectionURL":               "jdbc:derby:;databaseName=" + dir("metastore") + ";create=true",
		"datanucleus.schema.autoCreateAll":             "true",
		"hive.metastore.schema.verification":           "false",
		"hive.server2.enable.doAs":                     "false",
		"hive.server2.logging.operation.enabled":       "false",
		"hive.txn.manager":                             "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager",
		"hive.support.concurrency":                     "false",
		"hive.metastore.warehouse.dir":                 h.cfg.Cluster.DefaultFS() + "/warehouse",
		"hive.metastore.warehouse.external.dir":        h.cfg.Cluster.DefaultFS() + "/warehouse",
		"hive.exec.scratchdir":                         "/tmp/hive",
		"hive.user.install.directory":                  "/user/hive",
		"hive.exec.local.scratchdir":                   dir("scratch"),
		"hive.downloaded.resources.dir":                dir("resources"),
		"hive.querylog.location":                       dir("querylog"),
		"hive.tez.container.size":                      strconv.Itoa(containerMB),
		"hive.tez.java.opts":                           h.containerOptions(400),
		"hive.stats.autogather":                        "false",
		"hive.stats.column.autogather":                 "false",
		"hive.query.results.cache.enabled":             "false",
		"hive.server2.tez.initialize.default.sessions": "false",
	}
}

func (h *Hive) tezSettings() map[string]string {
	return map[string]string{
		"tez.ignore.lib.uris":                              "true", // the jars are on the one machine
		"tez.use.cluster.hadoop-libs":                      "true",
		"tez.queue.name":                                   hadoop.QueueProtected,
		"tez.staging-dir":                                  "/staging/tez",
		"tez.am.resource.memory.mb":                        strconv.Itoa(containerMB),
		"tez.am.launch.cmd-opts":                           h.containerOptions(300),
		"tez.am.tez-ui.webservice.enable":                  "false",
		"tez.am.am-rm.heartbeat.interval-ms.max":           "200",
		"tez.am.container.idle.release-timeout-min.millis": "1000",
		// The master would write a log to HDFS from which another master could continue. No counter contains these bytes.
		"tez.dag.recovery.enabled":                "false",
		"tez.cluster.additional.classpath.prefix": filepath.Join(h.cfg.Libraries.Tez, "*"),
	}
}

// Session is a session that has ended.
type Session struct {
	Application string     // its id
	Rows        [][]string // of all results
}

// Run executes statements in sessions of their own, one session after the other. The application of each session
// has ended for Hive, but maybe not yet for YARN.
func (h *Hive) Run(ctx context.Context, sessions ...[]string) ([]Session, error) {
	h.runs++
	name := fmt.Sprintf("hive-%d", h.runs)
	var files []string
	for i, statements := range sessions {
		file := filepath.Join(h.cfg.RunDir, fmt.Sprintf("%s-%d.sql", name, i))
		if err := os.WriteFile(file, []byte(strings.Join(statements, "\n")+"\n"), 0o644); err != nil {
			return nil, fmt.Errorf("hive: %w", err)
		}
		files = append(files, file)
	}
	path := []string{h.classes, h.confDir(), filepath.Join(h.cfg.Libraries.Hive, "*"), filepath.Join(h.cfg.Libraries.Tez, "*")}
	options := append(opens(), "-Dderby.stream.error.file="+filepath.Join(h.cfg.RunDir, "derby.log"))
	p, err := h.cfg.Cluster.Start(hadoop.Program{Name: name, HeapMB: 700, ClassPath: path, Options: options, Class: "Statements", Args: files})
	if err != nil {
		return nil, fmt.Errorf("hive: %w", err)
	}
	err = p.Wait(ctx)
	p.Kill() // if ctx has ended first
	if err != nil {
		return nil, fmt.Errorf("hive: %w; the last lines of %s:\n%s", err, p.Log(), process.Tail(p.Log(), 60))
	}
	text, err := os.ReadFile(p.Log())
	if err != nil {
		return nil, fmt.Errorf("hive: %w", err)
	}
	ended := parseSessions(string(text))
	if len(ended) != len(sessions) || slices.ContainsFunc(ended, func(s Session) bool { return s.Application == "" }) {
		return ended, fmt.Errorf("hive: %s has no application for each of %d sessions: %v", p.Log(), len(sessions), ended)
	}
	return ended, nil
}

var submitted = regexp.MustCompile(`Submitted application (application_\d+_\d+)`)

// parseSessions returns the sessions in the output of Statements.
func parseSessions(output string) (all []Session) {
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		if line == "SESSION" {
			all = append(all, Session{})
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		if columns, ok := strings.CutPrefix(line, "ROW\t"); ok {
			last.Rows = append(last.Rows, strings.Split(columns, "\t"))
		} else if m := submitted.FindStringSubmatch(line); m != nil {
			last.Application = m[1]
		}
	}
	return all
}

// Counters returns the sums of the counters of all tasks of an application that has ended, by their names, such as
// "HDFS_BYTES_READ". They come from the history that the application master writes into its log folder.
func (h *Hive) Counters(application string) (map[string]int64, error) {
	pattern := filepath.Join(h.cfg.Cluster.LogDir(), "containers", "nm*", application, "container_*", "history.txt.*")
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%s has %d files", pattern, len(files))
	}
	if err != nil {
		return nil, fmt.Errorf("hive: history of Tez: %w", err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("hive: %w", err)
	}
	counters, err := parseHistory(text)
	if err != nil {
		return nil, fmt.Errorf("hive: %s: %w", files[0], err)
	}
	return counters, nil
}

// countedGroups are the groups of counters that contain each byte once. Further groups contain parts of these sums.
var countedGroups = []string{"org.apache.tez.common.counters.FileSystemCounter", "org.apache.tez.common.counters.TaskCounter"}

// parseHistory adds up the counters of the graphs in a history of Tez.
func parseHistory(text []byte) (map[string]int64, error) {
	sums := map[string]int64{}
	graphs := 0
	for record := range bytes.SplitSeq(text, []byte("\x01\n")) {
		if record = bytes.TrimSpace(record); len(record) == 0 {
			continue
		}
		var event struct {
			Other struct {
				Status   string
				Counters struct {
					Groups []struct {
						Name     string `json:"counterGroupName"`
						Counters []struct {
							Name  string `json:"counterName"`
							Value int64  `json:"counterValue"`
						}
					} `json:"counterGroups"`
				}
			} `json:"otherinfo"`
		}
		if !bytes.Contains(record, []byte(`"DAG_FINISHED"`)) {
			continue
		}
		if err := json.Unmarshal(record, &event); err != nil {
			return nil, fmt.Errorf("record %.200q: %w", record, err)
		}
		if event.Other.Status != "SUCCEEDED" {
			return nil, fmt.Errorf("a graph has ended as %q", event.Other.Status)
		}
		graphs++
		for _, g := range event.Other.Counters.Groups {
			if !slices.Contains(countedGroups, g.Name) {
				continue
			}
			for _, c := range g.Counters {
				sums[c.Name] += c.Value
			}
		}
	}
	if graphs == 0 {
		return nil, errors.New("no graph has ended")
	}
	return sums, nil
}
