package isolation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment/figures"
	"penstock/lab/judge"
)

// Judge attributes the requests in the modelled disks' logs by the extents of files. A block
// file belongs to the job whose HDFS files have the block, by the NameNode, and an
// intermediate file to the application after which YARN named its folder. Without
// intermediate data it reads the extents once, after the window: no block file of either
// job is deleted before. Deleted files, and blocks of no file (journal, bitmaps), count as
// "other".
func (m *Machine) Judge(ctx context.Context, from, to time.Time, protected, aggressor Job) (*Verdict, error) {
	if !m.setup.Disk.Modelled {
		return nil, nil
	}
	o := owners{blocks: map[string]string{}, applications: map[string]string{}}
	for owner, j := range map[string]Job{ownerProtected: protected, ownerAggressor: aggressor} {
		if err := m.note(ctx, o, owner, j); err != nil {
			return nil, err
		}
	}
	seen := m.watchers
	if seen == nil {
		seen = newWatchers(m.Disks)
	}
	toMonotonic := disk.Monotonic() - time.Now().UnixNano()
	span := judge.Window{From: from.UnixNano() + toMonotonic, To: to.UnixNano() + toMonotonic}
	t := newTally(span)
	for i, d := range m.Disks {
		if err := seen.all[i].Look(); err != nil {
			return nil, err
		}
		records, err := judge.ReadLog(d)
		if err != nil {
			return nil, err
		}
		inside := within(records, span)
		t.latencies(inside)
		t.bytes(seen.all[i].Judge(inside, o.of, t.windows...))
	}
	return t.verdict(), nil
}

// note adds the blocks of the job's input and output, and its applications, to the owners.
func (m *Machine) note(ctx context.Context, o owners, owner string, j Job) error {
	if j == nil {
		return nil
	}
	located, ok := j.(interface{ paths() []string })
	if !ok {
		return fmt.Errorf("%s is not a job of this environment", j.Application())
	}
	for _, path := range located.paths() {
		if path == "" {
			continue
		}
		text, err := m.fsck(ctx, path)
		if err != nil {
			return err
		}
		for _, id := range blockName.FindAllString(text, -1) {
			o.blocks[id] = owner
		}
	}
	for _, id := range strings.Fields(j.Application()) {
		o.applications[id] = owner
	}
	return nil
}

// fsck asks the NameNode for the blocks below an HDFS path, like `hdfs fsck -files -blocks
// -openforwrite` but without a JVM. Files of an aggressor that still runs are open for writing.
func (m *Machine) fsck(ctx context.Context, path string) (string, error) {
	q := url.Values{"ugi": {"root"}, "path": {path}, "files": {"1"}, "blocks": {"1"}, "openforwrite": {"1"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Hadoop.NameNodeURL()+"/fsck?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fsck %s: %s: %.200s: %w", path, resp.Status, body, err)
	}
	return string(body), nil
}

func within(records []disk.Record, span judge.Window) []disk.Record {
	var out []disk.Record
	for _, r := range records {
		if r.Ended >= span.From && r.Ended < span.To {
			out = append(out, r)
		}
	}
	return out
}

// tally adds up the judged disks.
type tally struct {
	windows []judge.Window
	mbps    map[string][]float64
	read    map[string]int64
	written map[string]int64
	millis  []float64
}

func newTally(span judge.Window) *tally {
	return &tally{windows: judge.Windows(span, time.Second), mbps: map[string][]float64{},
		read: map[string]int64{}, written: map[string]int64{}}
}

func (t *tally) latencies(records []disk.Record) {
	for _, r := range records {
		if r.Op == disk.Read || r.Op == disk.Write {
			t.millis = append(t.millis, float64(r.Ended-r.Submitted)/1e6)
		}
	}
}

func (t *tally) bytes(accounts []judge.Account) {
	for i, a := range accounts {
		for owner, u := range a.Owners {
			if owner == judge.FileSystem {
				owner = ownerOther
			}
			if t.mbps[owner] == nil {
				t.mbps[owner] = make([]float64, len(accounts))
			}
			t.mbps[owner][i] += float64(u.Bytes()) / megabyte
			t.read[owner] += u.ReadBytes
			t.written[owner] += u.WriteBytes
		}
	}
}

func (t *tally) verdict() *Verdict {
	v := &Verdict{StepSeconds: 1, MBps: t.mbps, Bytes: map[string]int64{}, Read: t.read, Written: t.written,
		DeviceRequest: int64(len(t.millis))}
	for owner := range t.mbps {
		v.Bytes[owner] = t.read[owner] + t.written[owner]
	}
	for _, mbps := range t.mbps {
		for i := range mbps {
			mbps[i] = round3(mbps[i])
		}
	}
	if len(t.millis) > 0 {
		v.LatencyP50MS, v.LatencyP99MS = round3(figures.Quantile(t.millis, 0.5)), round3(figures.Quantile(t.millis, 0.99))
	}
	return v
}
