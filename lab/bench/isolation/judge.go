package isolation

import (
	"cmp"
	"context"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment/figures"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
)

// Judge attributes the requests in the modelled disks' logs by the extents of files. The NameNode
// lists the blocks of each job's HDFS files, from which Judge knows the owner of each block file.
// The owner of an intermediate file is known from its folder, which YARN names after the
// application. Without intermediate data, Judge reads the extents once, after the window, because
// no block file of either job is deleted earlier. Requests for deleted files, and for disk blocks
// outside files (journal, bitmaps), count as "other".
func (m *Machine) Judge(ctx context.Context, from, to time.Time, protected, aggressor *Job) (*Verdict, error) {
	if !m.setup().Disk.Modelled {
		return nil, nil
	}
	owners := hadoop.NewOwners()
	for owner, j := range map[string]*Job{ownerProtected: protected, ownerAggressor: aggressor} {
		if j == nil {
			continue
		}
		owners.AddApplications(owner, j.Applications...)
		for _, path := range j.paths {
			blocks, err := m.Hadoop.BlockNames(ctx, path)
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
	err := cmp.Or(m.watched, judge.NewDisks(m.Disks)).Judge(span, time.Second, owners.Of, func(requests []disk.Record, accounts []judge.Account) {
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
				owner = ownerOther
			}
			if v.MBps[owner] == nil {
				v.MBps[owner] = make([]float64, len(accounts))
			}
			v.MBps[owner][i] += float64(u.Bytes()) / megabyte
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
			mbps[i] = round3(mbps[i])
		}
	}
	if v.DeviceRequest = int64(len(millis)); len(millis) > 0 {
		v.LatencyP50MS, v.LatencyP99MS = round3(figures.Quantile(millis, 0.5)), round3(figures.Quantile(millis, 0.99))
	}
}

// lookEvery is the interval at which the extents of intermediate files are read. Such files exist
// only for seconds, and have extents only after the kernel has written them to the disk.
const lookEvery = time.Second
