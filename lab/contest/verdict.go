package contest

import (
	"context"
	"math"
	"time"

	"penstock/lab/chart"
	"penstock/lab/disk"
	"penstock/lab/experiment/figures"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
)

// OwnerOther is the owner of bytes that belong to no job: journal, bitmaps, deleted files.
const OwnerOther = "other"

// LookEvery is the interval at which the extents of intermediate files are read. Such files exist
// only for seconds, and have extents only after the kernel has written them to the disk.
const LookEvery = time.Second

// Verdict is the independent judge's account of a window.
type Verdict struct {
	StepSeconds   float64              `json:"step_s"`
	MBps          map[string][]float64 `json:"mb_s,omitempty"` // by owner, MB/s per step
	Bytes         map[string]int64     `json:"bytes"`          // by owner, over the window
	Read          map[string]int64     `json:"read_bytes,omitempty"`
	Written       map[string]int64     `json:"write_bytes,omitempty"`
	LatencyP99MS  float64              `json:"latency_p99_ms"` // of device requests; 0 when there were none
	LatencyP50MS  float64              `json:"latency_p50_ms"`
	DeviceRequest int64                `json:"device_requests"`
}

// Judge attributes the requests in the modelled disks' logs by the extents of files. The NameNode
// lists the blocks of each job's HDFS files, from which Judge knows the owner of each block file.
// The owner of an intermediate file is known from its folder, which YARN names after the
// application. Requests for deleted files, and for disk blocks outside files (journal, bitmaps),
// count as OwnerOther. jobs are by owner. The disks may have been watched; otherwise Judge sees the
// files that exist now.
func Judge(ctx context.Context, h *hadoop.Cluster, disks *judge.Disks, from, to time.Time, jobs map[string]*Job) (*Verdict, error) {
	owners := hadoop.NewOwners()
	for owner, j := range jobs {
		if j == nil {
			continue
		}
		owners.AddApplications(owner, j.Applications...)
		for _, path := range j.Paths {
			blocks, err := h.BlockNames(ctx, path)
			if err != nil {
				return nil, err
			}
			owners.AddBlocks(owner, blocks...)
		}
	}
	toMonotonic := disk.Monotonic() - time.Now().UnixNano()
	span := judge.Window{From: from.UnixNano() + toMonotonic, To: to.UnixNano() + toMonotonic}
	v := newVerdict()
	var millis []float64
	err := disks.Judge(span, time.Second, owners.Of, func(requests []disk.Record, accounts []judge.Account) {
		millis = append(millis, latencies(requests)...)
		v.add(accounts)
	})
	if err != nil {
		return nil, err
	}
	v.finish(millis)
	return v, nil
}

// latencies returns the latency of each read and each write, in milliseconds.
func latencies(records []disk.Record) (millis []float64) {
	for _, r := range records {
		if r.Op == disk.Read || r.Op == disk.Write {
			millis = append(millis, float64(r.Ended-r.Submitted)/1e6)
		}
	}
	return millis
}

func newVerdict() *Verdict {
	return &Verdict{StepSeconds: 1, MBps: map[string][]float64{}, Bytes: map[string]int64{}, Read: map[string]int64{}, Written: map[string]int64{}}
}

// add adds the accounts of one disk, of which there is one for each second.
func (v *Verdict) add(accounts []judge.Account) {
	for i, a := range accounts {
		for owner, u := range a.Owners {
			if owner == judge.FileSystem {
				owner = OwnerOther
			}
			if v.MBps[owner] == nil {
				v.MBps[owner] = make([]float64, len(accounts))
			}
			v.MBps[owner][i] += float64(u.Bytes()) / Megabyte
			v.Read[owner] += u.ReadBytes
			v.Written[owner] += u.WriteBytes
			v.Bytes[owner] += u.Bytes()
		}
	}
}

// finish computes the figures over all disks.
func (v *Verdict) finish(millis []float64) {
	for _, mbps := range v.MBps {
		for i := range mbps {
			mbps[i] = Round3(mbps[i])
		}
	}
	if v.DeviceRequest = int64(len(millis)); len(millis) > 0 {
		v.LatencyP50MS, v.LatencyP99MS = Round3(figures.Quantile(millis, 0.5)), Round3(figures.Quantile(millis, 0.99))
	}
}

// Round3 rounds to three decimals, which keeps journals short.
func Round3(v float64) float64 { return math.Round(v*1000) / 1000 }

// Steps returns the points of a chart of rates, each in the middle of its step of the given seconds.
func Steps(mbps []float64, step float64) []chart.Point {
	points := make([]chart.Point, len(mbps))
	for i, v := range mbps {
		points[i] = chart.Point{X: (float64(i) + 0.5) * step, Y: v}
	}
	return points
}
