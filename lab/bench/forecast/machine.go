package forecast

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/stand"
	"penstock/lab/tpch"
	"penstock/ops/operate"
)

// Folders of HDFS. WordCount and Bayes read textDir; Sort reads sortDir, which has fewer files of the same text.
const (
	textDir       = "/text"
	sortDir       = "/sort"
	rowsDir       = "/rows"
	tablesDir     = "/tables"
	pointsDir     = "/points"
	backgroundDir = "/background"
	seed          = 20161125 // seed of all inputs; any number is possible
	// backgroundNumber is the number of the application to which the background belongs.
	backgroundNumber = 101
	// queue is the only queue. A job alone may use all of the node.
	queue = "root.jobs"
)

// Sizes. The NodeManager offers eight containers of 512 MB: twice as many as taskSlots and an application master. Two executors
// and their application master fill the node.
const (
	taskSlots    = 3
	nodeMemory   = 2 * (1 + taskSlots) * 512 * mib // in bytes
	executors    = 2
	execMemory   = "1g"
	blockBytes   = 32 * mib
	diskBytes    = 12 << 30
	serverAgents = 2 // agents of the DataNode and of the NodeManager
)

// machine is the machine of the measurement: a disk with HDFS and intermediate data, YARN, Spark on YARN, a node
// daemon, a broker that polls the ResourceManager, and a client of the broker.
type machine struct {
	*stand.Stand
	setup   Setup
	spark   *spark.Spark // nil until a row needs it
	broker  *operate.Client
	request Request
	has     map[string]bool    // inputs that are written, by folder
	words   *hadoop.WordCounts // of WordCount's input
	lines   *hadoop.WordCounts // of Sort's input
	rows    hadoop.Checksum128
	answer  string // digest of the query's rows, of its first run
	jobs    int    // so far
}

// startMachine starts a machine in the folder dir. If that fails, it undoes all changes.
func startMachine(ctx context.Context, q Request, dir string) (_ *machine, err error) {
	m := &machine{setup: q.Setup, request: q, has: map[string]bool{}}
	profile := ""
	m.Stand, err = stand.Up(ctx, stand.Spec{
		Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Sysctls: stand.LateWriteback,
		Disks:   []disk.Options{{Name: "data", Size: diskBytes, Scheduler: q.Setup.Scheduler}},
		Prepare: func(_ context.Context, s *stand.Stand) (err error) {
			profile, err = s.WriteProfile(s.Disks[0], disk.HDD(q.Setup.DiskRate), q.Setup.Quantum)
			return err
		},
		Nodes: func(s *stand.Stand) []daemon.Options {
			// The background only claims its application, so the daemon must not verify names.
			return []daemon.Options{{Mode: "enforce", LogLevel: "info", Device: q.Setup.deviceSettings(profile),
				More: fmt.Sprintf("%sbroker: {addresses: [%q], node: node}\n", daemon.Believe, s.BrokerAddress())}}
		},
		Broker: func(s *stand.Stand) []string {
			return []string{"--policy", s.PolicyFile(), "--resource-manager", s.Hadoop.ResourceManagerURL()}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{Version: q.Setup.Hadoop, DataNodes: s.DataNodes("dfs"), LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")},
				BlockSize: blockBytes, TaskSlots: taskSlots, Queues: []string{queue}, Governed: s.Governed(0)}
		},
		ClientClasses: true,
		Agents:        []int{serverAgents},
		Stop:          func() error { return m.stop() },
	})
	if err != nil {
		return nil, err
	}
	if m.broker, err = operate.New([]string{m.BrokerAddress()}, nil); err != nil {
		return nil, errors.Join(err, m.Down())
	}
	return m, nil
}

// stop stops what the stand, on which the machine is built, does not stop.
func (m *machine) stop() error {
	if m.broker != nil {
		m.broker.Close()
	}
	if m.spark != nil {
		return m.spark.Stop()
	}
	return nil
}

// limit turns the disk's rate on or off.
func (m *machine) limit(on bool) error {
	if on {
		return m.SetModel(disk.HDD(m.setup.DiskRate))
	}
	return m.SetModel(disk.Model{})
}

// prepare writes the inputs that a row needs and that do not exist yet, on a disk without a limit.
func (m *machine) prepare(ctx context.Context, r Row) error {
	if onSpark(r.Job) && m.spark == nil {
		if err := m.startSpark(ctx); err != nil {
			return err
		}
	}
	needs := []struct {
		dir   string
		write func(context.Context) error
	}{
		{textDir, m.writeText}, {rowsDir, m.writeRows}, {sortDir, m.writeSort}, {tablesDir, m.writeTables}, {pointsDir, m.writePoints},
		{backgroundDir, m.writeBackground},
	}
	of := map[string]string{wordCount: textDir, bayes: textDir, teraSort: rowsDir, sorting: sortDir, query: tablesDir, kMeans: pointsDir}
	for _, n := range needs {
		if wanted := n.dir == of[r.Job] || n.dir == backgroundDir && !r.Profile; !wanted || m.has[n.dir] {
			continue
		}
		m.request.Progress("writing %s", n.dir)
		if err := n.write(ctx); err != nil {
			return fmt.Errorf("write %s: %w", n.dir, err)
		}
		m.has[n.dir] = true
	}
	return nil
}

func (m *machine) startSpark(ctx context.Context) error {
	home, err := spark.Fetch(ctx, m.request.Cache, spark.Version, m.request.Progress)
	if err != nil {
		return err
	}
	m.spark, err = spark.Start(ctx, spark.Config{RunDir: m.Path("spark"), Home: home, Cluster: m.Hadoop, Governed: m.Governed(0), Progress: m.request.Progress,
		Settings: map[string]string{"spark.executor.memory": execMemory,
			// The broker reads the progress from the driver.
			"spark.ui.enabled": "true", "spark.ui.port": "0"}})
	return err
}

func (m *machine) text(files int) hadoop.Text {
	return hadoop.Text{Seed: seed, WordBytes: m.setup.WordBytes, Files: files, FileBytes: m.setup.TextBytes / int64(m.setup.TextFiles)}
}

func (m *machine) writeText(ctx context.Context) (err error) {
	m.words, err = m.Hadoop.WriteText(ctx, textDir, m.text(m.setup.TextFiles))
	return err
}

func (m *machine) writeSort(ctx context.Context) (err error) {
	m.lines, err = m.Hadoop.WriteText(ctx, sortDir, m.text(m.setup.SortFiles))
	return err
}

func (m *machine) writeRows(ctx context.Context) (err error) {
	m.rows, err = m.Hadoop.WriteRows(ctx, rowsDir, hadoop.Rows{Seed: seed, Rows: m.setup.RowBytes / hadoop.RowBytes, Files: m.setup.RowFiles})
	return err
}

func (m *machine) writeTables(ctx context.Context) error {
	generator, err := tpch.Fetch(ctx, m.request.Cache)
	if err != nil {
		return err
	}
	return tpch.Load(ctx, m.Hadoop.FS(), generator, m.Dir, tablesDir, m.setup.Scale, m.setup.TableParts)
}

func (m *machine) writePoints(ctx context.Context) error {
	j, err := m.submitSpark(ctx, "points", spark.MLlib, "points", m.Hadoop.DefaultFS()+pointsDir, fmt.Sprint(m.setup.KMeansRows), fmt.Sprint(m.setup.Partitions))
	if err != nil {
		return err
	}
	_, err = j.wait(ctx)
	return err
}

// backgroundFile returns the path of the file that a stream of the background reads, counted from 0.
func backgroundFile(stream int) string { return fmt.Sprintf("%s/file-%d", backgroundDir, stream) }

func (m *machine) writeBackground(ctx context.Context) error {
	jvm, err := m.StartClients(client.Options{Log: m.Path("writer.log")})
	if err != nil {
		return err
	}
	defer jvm.Stop()
	bytes := m.setup.BackgroundBytes
	for i := range m.setup.BackgroundStreams {
		// A file of one block has one connection.
		args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1", backgroundFile(i), client.Attempt(backgroundNumber), bytes, seed, (bytes+511)/512*512)
		if err := jvm.Run(ctx, "put", args); err != nil {
			return err
		}
	}
	return nil
}

// background reads its files until it is stopped.
type background struct {
	jvm   *client.JVM
	ended chan error // has the reason if a stream has ended
}

// beginBackground starts the background.
func (m *machine) beginBackground() (*background, error) {
	jvm, err := m.StartClients(client.Options{Log: m.Path(fmt.Sprintf("background-%d.log", m.jobs))})
	if err != nil {
		return nil, err
	}
	b := &background{jvm: jvm, ended: make(chan error, m.setup.BackgroundStreams)}
	for i := range m.setup.BackgroundStreams {
		jvm.Do("get", fmt.Sprintf("path=%s attempt=%s seed=%d", backgroundFile(i), client.Attempt(backgroundNumber), seed), func(event, value string) {
			switch event {
			case "done":
				b.ended <- errors.New("the background has read its whole file: make the file larger (background_bytes)")
			case "error":
				b.ended <- fmt.Errorf("the background: %s", value)
			}
		})
	}
	return b, nil
}

// inForce waits until the daemon has the weights of two flows, as far as it has these flows.
func (m *machine) inForce(ctx context.Context, weights map[string]int) error {
	return m.Await(ctx, fmt.Sprintf("the weights %v are in force", weights), func(ctx context.Context) (bool, error) {
		doc, err := m.Status(ctx, 0)
		if err != nil {
			return false, err
		}
		for _, d := range doc.Devices {
			for _, f := range d.Flows {
				if w, known := weights[f.Name]; known && f.Weight != w {
					return false, fmt.Errorf("%s has the weight %d", f.Name, f.Weight)
				}
			}
		}
		return true, nil
	})
}

// policy returns a policy with these weights; every other weight is 1.
func policy(weights map[string]int) string {
	text := "default: 1\n"
	if len(weights) > 0 {
		text += "rules:\n"
	}
	var names []string
	for name := range weights {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text += fmt.Sprintf("  - {flow: %s, weight: %d}\n", name, weights[name])
	}
	return text
}
