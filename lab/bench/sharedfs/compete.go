package sharedfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/poll"
	"penstock/lab/proc"
	"penstock/lab/process"
	"penstock/lab/stand"
	"penstock/lab/storage"
)

// Contest is the result of a row with storage clients. Figures are of the time in which storage clients and TeraSorts run.
type Contest struct {
	Clients Clients `json:"clients"`
	Sorts   Sorts   `json:"sorts"`
	CPU     float64 `json:"cpu"` // busy part of the machine's CPUs, 0 to 1
	Service Use     `json:"service_disks"`
	Other   Use     `json:"other_disks"`
	Local   Use     `json:"local_disks"`
	Turns   *Turns  `json:"turns,omitempty"` // with daemons
}

// Clients are the figures of the storage clients.
type Clients struct {
	Cycles     int     `json:"cycles"`
	MBs        float64 `json:"mb_per_s"` // of all clients, while they write or read
	WriteMBs   float64 `json:"write_mb_per_s"`
	ReadMBs    float64 `json:"read_mb_per_s"`
	Transfers  int64   `json:"transfers"`
	P50MS      float64 `json:"p50_ms"` // of a transfer
	P99MS      float64 `json:"p99_ms"`
	WriteP99MS float64 `json:"write_p99_ms"`
	ReadP99MS  float64 `json:"read_p99_ms"`
	Probes     int64   `json:"probes"`
	ProbeP50MS float64 `json:"probe_p50_ms"` // of a read of 4 KiB at a random place
	ProbeP99MS float64 `json:"probe_p99_ms"`
	Active     float64 `json:"active"` // part of the TeraSorts' makespan in which they write or read, 0 to 1
}

// Sorts are the figures of the TeraSorts, by the ResourceManager.
type Sorts struct {
	MakespanS float64 `json:"makespan_s"` // from the first submission to the last end
	MeanS     float64 `json:"mean_s"`     // from submission to end, with the wait for the queue
	AtOnce    int     `json:"at_once"`    // the most that were seen running at a time
}

// Use is how disks were used.
type Use struct {
	Busy      float64 `json:"busy"` // mean part of the time, 0 to 1
	ReadMB    float64 `json:"read_mb"`
	WrittenMB float64 `json:"written_mb"`
}

// Turns are counts of the daemons of all servers.
type Turns struct {
	Taken      float64            `json:"taken"`
	Late       float64            `json:"late"`
	Overdue    float64            `json:"overdue"`
	Forwarded  float64            `json:"forwarded"`
	Refused    float64            `json:"refused"`
	Unanswered float64            `json:"unanswered"`
	FlowsMB    map[string]float64 `json:"flows_mb"` // bytes of each application at the servers
}

func (c Contest) String() string {
	text := fmt.Sprintf("clients %.1f MB/s, p50 %.0f ms, p99 %.0f ms, 4 KiB p99 %.0f ms; TeraSorts %.0f s, mean %.0f s, at most %d at once; busy: CPU %.2f, service's disks %.2f",
		c.Clients.MBs, c.Clients.P50MS, c.Clients.P99MS, c.Clients.ProbeP99MS, c.Sorts.MakespanS, c.Sorts.MeanS, c.Sorts.AtOnce, c.CPU, c.Service.Busy)
	if c.Turns != nil {
		text += fmt.Sprintf("; %.0f turns, %.0f late, %.0f overdue, %.0f unanswered", c.Turns.Taken, c.Turns.Late, c.Turns.Overdue, c.Turns.Unanswered)
	}
	return text
}

// contest measures a row with storage clients on a machine of its own.
func (q Request) contest(ctx context.Context, r row, dir string) (result Contest, err error) {
	c, err := startContest(ctx, q, r, dir)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, c.Down(), removeContainerLogs(dir)) }()
	q.Progress("  writing the files of the storage clients and the input of %d TeraSorts", q.Setup.Beside.Sorts)
	if err := c.writeFiles(ctx); err != nil {
		return result, fmt.Errorf("files of the storage clients: %w", err)
	}
	sums, err := c.writeInputs(ctx)
	if err != nil {
		return result, fmt.Errorf("input of the TeraSorts: %w", err)
	}
	for _, d := range c.Disks {
		if err := d.Sync(); err != nil {
			return result, err
		}
	}
	if err := errors.Join(ledger.DropCaches(), c.limit(true)); err != nil {
		return result, err
	}
	result, err = c.compete(ctx)
	if err = errors.Join(err, c.limit(false)); err != nil {
		return result, err
	}
	q.Progress("  checking the outputs")
	rows := c.setup.Beside.rows()
	for i, want := range sums {
		sorted, err := c.check(ctx, output(i), rows, hadoop.RowCheck{Sorted: true})
		if err == nil && sorted != want {
			err = fmt.Errorf("the sorted rows of TeraSort %d have the checksum %s, those before %s", i+1, sorted, want)
		}
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

func input(i int) string  { return fmt.Sprintf("rows%d", i+1) }
func output(i int) string { return fmt.Sprintf("sorted%d", i+1) }

// rows returns the number of rows of a TeraSort's input, the same in each of its files.
func (b Beside) rows() int64 {
	return int64(b.SortMiB) * mib / hadoop.RowBytes / int64(b.Files) * int64(b.Files)
}

// writeFiles writes the storage clients' files. GlusterFS chooses a file's server by its name, so writeFiles tries more names than it needs.
func (c *contest) writeFiles(ctx context.Context) error {
	const folder = "clients"
	n, dir := len(c.hosts), filepath.Join(c.service, folder)
	names := 16 * n * len(c.others)
	_, err := c.others[0].Run(ctx, "sh", "-c", `mkdir "$0" && cd "$0" && for i in $(seq "$1"); do : >file$i || exit 1; done`, dir, fmt.Sprint(names))
	if err != nil {
		return err
	}
	disks, _, _ := parts(c.Stand)
	c.files = make([]files, len(c.others))
	for server, brick := range folders(disks) {
		found, err := filepath.Glob(filepath.Join(brick, folder, "file*"))
		if err != nil {
			return err
		}
		if len(found) < 2*len(c.others) {
			return fmt.Errorf("of %d files, only %d are at the server %s: run it again", names, len(found), c.hosts[server].Name)
		}
		for i := range c.files {
			f := &c.files[i]
			f.transfers = append(f.transfers, filepath.Join(dir, filepath.Base(found[2*i])))
			f.probes = append(f.probes, filepath.Join(dir, filepath.Base(found[2*i+1])))
		}
	}
	for i, h := range c.others {
		if err := errors.Join(fill(ctx, h, c.setup.Beside.FileMiB, c.files[i].transfers), fill(ctx, h, probeMiB, c.files[i].probes)); err != nil {
			return err
		}
		if err := os.WriteFile(c.jobs(i), []byte(c.setup.Beside.jobs(c.files[i])), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fill writes so many bytes into each of the files that all of them are on the disk.
func fill(ctx context.Context, h *storage.Host, mibs int, files []string) error {
	_, err := h.Run(ctx, append([]string{"sh", "-c", `for f in "$@"; do head -c "$0" /dev/zero >"$f" || exit 1; done`, fmt.Sprint(mibs * mib)}, files...)...)
	return err
}

// jobs returns the path of fio's job file for the host c.others[i].
func (c *contest) jobs(i int) string { return c.Path(fmt.Sprintf("fio%d.jobs", i)) }

// writeInputs writes the input of all TeraSorts, and returns the checksums of their rows.
func (c *contest) writeInputs(ctx context.Context) (sums []hadoop.Checksum128, err error) {
	b := c.setup.Beside
	for i := range b.Sorts {
		h, dir := c.hosts[i%len(c.hosts)], filepath.Join(c.root(), input(i))
		if _, err := h.Run(ctx, "mkdir", dir); err != nil {
			return nil, err
		}
		var sum hadoop.Checksum128
		for file := range b.Files {
			one, err := writeRows(ctx, h, filepath.Join(dir, fmt.Sprintf("part-%d", file)), uint64(i*b.Files+file), b.rows()/int64(b.Files))
			if err != nil {
				return nil, err
			}
			sum.Plus(one)
		}
		sums = append(sums, sum)
	}
	return sums, nil
}

// writeRows writes a file of rows on a host, and returns their checksum.
func writeRows(ctx context.Context, h *storage.Host, path string, seed uint64, rows int64) (sum hadoop.Checksum128, err error) {
	err = writeOn(ctx, h, path, func(w io.Writer) (err error) {
		sum, err = hadoop.WriteRowFile(w, seed, rows)
		return err
	})
	return sum, err
}

// used holds counters at an instant.
type used struct {
	at    time.Time
	cpu   time.Duration
	disks [3]activity // in the order of parts
}

func (c *contest) used() (u used, err error) {
	service, other, local := parts(c.Stand)
	for i, disks := range [][]*disk.Disk{service, other, local} {
		if u.disks[i], err = activityOf(disks); err != nil {
			return u, err
		}
	}
	u.at = time.Now()
	u.cpu, err = proc.MachineCPUTime()
	return u, err
}

// use returns the use of the disks of one kind between two readings.
func (c *contest) use(kind int, from, to used) Use {
	a, b := from.disks[kind], to.disks[kind]
	return Use{Busy: round((b.busy - a.busy).Seconds() / to.at.Sub(from.at).Seconds() / float64(c.setup.Hosts)),
		ReadMB: round((b.read - a.read) / megabyte), WrittenMB: round((b.written - a.written) / megabyte)}
}

// sortPatience bounds the time of each TeraSort, if only one of them runs at a time.
const sortPatience = 3 * time.Minute

// compete runs the TeraSorts and, from the time of their first tasks to their end, the storage clients.
func (c *contest) compete(ctx context.Context) (result Contest, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sortPatience*time.Duration(2+c.setup.Beside.Sorts),
		errors.New("the TeraSorts take too long: look at the logs of their clients in the run folder"))
	defer cancel()
	s := &sorting{contest: c, begun: make(chan struct{}), ended: make(chan struct{}), running: map[int]bool{}}
	go s.perform(ctx)
	select {
	case <-s.begun:
	case <-s.ended:
		return result, cmp.Or(s.err, errors.New("the TeraSorts have ended, and no task of theirs was seen"))
	}
	before, err := c.used()
	var m measured
	if err == nil {
		m, result.Clients, err = c.serve(ctx, s)
	}
	if err != nil {
		cancel() // the TeraSorts need not go on
	}
	<-s.ended
	if err = errors.Join(s.err, err); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			err = errors.Join(cause, err)
		}
		return result, err
	}
	passed := s.after.at.Sub(before.at)
	result.Sorts = s.figures()
	result.Clients = c.figures(m, result.Clients, s.last.Sub(s.first))
	result.CPU = round((s.after.cpu - before.cpu).Seconds() / passed.Seconds() / float64(c.setup.Machine.CPUs))
	result.Service, result.Other, result.Local = c.use(0, before, s.after), c.use(1, before, s.after), c.use(2, before, s.after)
	if len(c.Nodes) > 0 {
		result.Turns, err = c.turns(ctx)
	}
	return result, err
}

// sorting runs the TeraSorts.
type sorting struct {
	*contest
	begun chan struct{} // closed when the first task of the TeraSorts runs
	ended chan struct{} // closed when all of them have ended, or one has failed. The fields below are final then:
	err   error
	after used

	mu          sync.Mutex
	tasks       bool // begun is closed
	running     map[int]bool
	most        int // of them at a time
	done        int
	first, last time.Time // submission, end
	elapsed     time.Duration
}

// perform submits all TeraSorts, one after the other, and waits for their ends.
func (s *sorting) perform(ctx context.Context) {
	defer close(s.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := s.setup.Beside.Sorts
	results := make(chan error, n)
	for i := range n {
		go func() { results <- s.one(ctx, i) }()
	}
	for range n {
		if err := <-results; err != nil && s.err == nil { // the others end because of the first one
			s.err = err
			cancel()
		}
	}
	if s.err == nil {
		s.after, s.err = s.used()
	}
}

// one submits a TeraSort at its time and waits for its end.
func (s *sorting) one(ctx context.Context, i int) error {
	select {
	case <-time.After(time.Duration(i*s.setup.Beside.EveryS) * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	app, err := s.Hadoop.Submit(ctx, hadoop.Job{Kind: hadoop.TeraSort, Input: "/" + input(i), Output: "/" + output(i), Reduces: 1, Queue: queue})
	if err != nil {
		return fmt.Errorf("submit TeraSort %d: %w", i+1, err)
	}
	err = poll.Until(ctx, time.Second, func() (bool, error) {
		now, err := app.Status(ctx)
		if err != nil { // of one answer of a busy ResourceManager
			return false, s.Hadoop.Check()
		}
		s.saw(i, now)
		return now.Ended(), nil
	})
	if err != nil {
		return fmt.Errorf("wait for TeraSort %d, %s: %w; the last lines of its client's log:\n%s", i+1, app.ID, err, process.Tail(app.Log, 10))
	}
	status, err := app.Wait(ctx) // it says why the application has failed, if it has
	if err != nil {
		return fmt.Errorf("TeraSort %d: %w", i+1, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.elapsed += status.Elapsed
	if s.first.IsZero() || status.Started.Before(s.first) {
		s.first = status.Started
	}
	if status.Finished.After(s.last) {
		s.last = status.Finished
	}
	s.Spec.Progress("  TeraSort %d: %.0f s from its submission; %d of %d have ended", i+1, status.Elapsed.Seconds(), s.done, s.setup.Beside.Sorts)
	return nil
}

// saw records the state of a TeraSort.
func (s *sorting) saw(i int, now hadoop.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[i] = now.State == "RUNNING"; s.running[i] && now.Containers > 1 && !s.tasks {
		s.tasks = true
		close(s.begun)
	}
	n := 0
	for _, running := range s.running {
		if running {
			n++
		}
	}
	s.most = max(s.most, n)
}

func (s *sorting) figures() Sorts {
	return Sorts{MakespanS: round(s.last.Sub(s.first).Seconds()), MeanS: round(s.elapsed.Seconds() / float64(s.done)), AtOnce: s.most}
}

// serve repeats the cycle of the storage clients until the TeraSorts have ended. A cycle in which they end is not measured, because its
// rest has no TeraSorts beside it. serve sets only two of the figures: Cycles, and Active to the seconds in which the clients wrote or read.
func (c *contest) serve(ctx context.Context, s *sorting) (m measured, figures Clients, err error) {
	phases := 2 * time.Duration(c.setup.Beside.PhaseS) * time.Second
	for {
		begin := time.Now()
		one, err := c.cycle(ctx)
		if err != nil {
			return m, figures, fmt.Errorf("storage clients, cycle %d: %w", figures.Cycles+1, err)
		}
		select {
		case <-s.ended:
			figures.Active += min(phases, max(0, s.after.at.Sub(begin))).Seconds()
			if figures.Cycles == 0 && s.err == nil {
				err = errors.New("the TeraSorts ended before the storage clients had measured anything: raise --sorts or --sort-size")
			}
			return m, figures, err
		default:
		}
		m.plus(one)
		figures.Cycles++
		figures.Active += phases.Seconds()
		select {
		case <-s.ended:
			return m, figures, nil
		case <-time.After(phases):
		}
	}
}

// cycle lets all storage clients write and read once.
func (c *contest) cycle(ctx context.Context) (m measured, err error) {
	type outcome struct {
		measured
		err error
	}
	outcomes := make(chan outcome, len(c.others))
	for i, h := range c.others {
		go func() {
			one, err := c.fio(ctx, i, h.Urgent())
			outcomes <- outcome{one, err}
		}()
	}
	for range c.others {
		o := <-outcomes
		m.plus(o.measured)
		err = errors.Join(err, o.err)
	}
	return m, err
}

// fio runs the processes of the host c.others[i], and returns what they have measured.
func (c *contest) fio(ctx context.Context, i int, h *storage.Host) (measured, error) {
	out := c.Path(fmt.Sprintf("fio%d.json", i))
	if err := os.RemoveAll(out); err != nil {
		return measured{}, err
	}
	_, err := h.Run(ctx, "fio", "--output-format=json+", "--output="+out, c.jobs(i))
	if err != nil {
		return measured{}, fmt.Errorf("%w; the last lines of %s:\n%s", err, out, process.Tail(out, 15))
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return measured{}, err
	}
	m, err := parseFio(string(text))
	if err != nil {
		err = fmt.Errorf("%s: %w", out, err)
	}
	return m, err
}

// figures completes the figures of the storage clients beside TeraSorts with that makespan.
func (c *contest) figures(m measured, f Clients, makespan time.Duration) Clients {
	processes := float64(len(c.others) * len(c.hosts))
	rate := func(t tally) float64 { return round(float64(t.bytes) / megabyte / t.seconds * processes) }
	ms := func(t tally, q float64) float64 { return round(t.quantile(q).Seconds() * 1e3) }
	all := m.transfers()
	f.MBs, f.WriteMBs, f.ReadMBs = rate(all), rate(m.writes), rate(m.reads)
	f.Transfers, f.P50MS, f.P99MS = all.requests(), ms(all, 0.5), ms(all, 0.99)
	f.WriteP99MS, f.ReadP99MS = ms(m.writes, 0.99), ms(m.reads, 0.99)
	f.Probes, f.ProbeP50MS, f.ProbeP99MS = m.probes.requests(), ms(m.probes, 0.5), ms(m.probes, 0.99)
	f.Active = round(min(1, f.Active/makespan.Seconds()))
	return f
}

// turns reads the daemons' counters. If most of the TeraSorts' bytes had no turn, the row does not show what it must show, and turns
// returns an error.
func (c *contest) turns(ctx context.Context) (*Turns, error) {
	t := &Turns{FlowsMB: map[string]float64{}}
	service, _, _ := parts(c.Stand)
	total := 0.0
	for i, d := range c.Nodes {
		m, err := d.Scrape(ctx)
		if err != nil {
			return nil, err
		}
		t.Taken += m.Sum("turns_total", "outcome=taken")
		t.Late += m.Sum("turns_total", "outcome=late")
		t.Overdue += m.Sum("turns_total", "outcome=overdue")
		t.Forwarded += m.Sum("turns_away_total", "outcome=forwarded")
		t.Refused += m.Sum("turns_away_total", "outcome=refused")
		t.Unanswered += m.Sum("turns_away_total", "outcome=unanswered")
		m.Each("flow_bytes_total", func(labels map[string]string, bytes float64) {
			if labels["device"] == stand.KernelName(service[i]) && bytes > 0 {
				t.FlowsMB[labels["flow"]] += bytes / megabyte
			}
		})
		total += m.Sum("turn_bytes_total") // also of applications that the daemon has forgotten
	}
	for name, mb := range t.FlowsMB {
		t.FlowsMB[name] = round(mb)
	}
	b := c.setup.Beside
	if due := 2 * float64(b.rows()*hadoop.RowBytes*int64(b.Sorts)); total < due/2 {
		var logs []string
		for _, d := range c.Nodes {
			logs = append(logs, d.Log)
		}
		slices.Sort(logs)
		return t, fmt.Errorf("turns for only %.0f MB of the %.0f MB that the TeraSorts have read and written (%.0f taken, %.0f late, %.0f refused, %.0f unanswered): see %v; the last lines of the first one:\n%s",
			total/megabyte, due/megabyte, t.Taken, t.Late, t.Refused, t.Unanswered, logs, process.Tail(logs[0], 15))
	}
	return t, nil
}
