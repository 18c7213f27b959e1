package contest

import (
	"slices"
	"testing"

	"penstock/lab/disk"
	"penstock/lab/judge"
)

func TestVerdict(t *testing.T) {
	v := newVerdict()
	for range 2 { // two disks
		v.add([]judge.Account{
			{Owners: map[string]judge.Usage{"protected": {ReadBytes: 1e6}}},
			{Owners: map[string]judge.Usage{"aggressor": {WriteBytes: 3e6}, judge.FileSystem: {WriteBytes: 4000}}},
			{},
		})
	}
	v.finish(latencies([]disk.Record{{Op: disk.Read, Ended: 5e6}, {Op: disk.Write, Ended: 9e6}, {Op: disk.Discard, Ended: 99e6}}))
	if !slices.Equal(v.MBps["aggressor"], []float64{0, 6, 0}) || v.Bytes["protected"] != 2e6 || v.Bytes[OwnerOther] != 8000 ||
		v.Read["protected"] != 2e6 || v.Written["protected"] != 0 || v.Written["aggressor"] != 6e6 {
		t.Errorf("verdict %+v", v)
	}
	if v.DeviceRequest != 2 || v.LatencyP99MS != 9 || v.LatencyP50MS != 5 {
		t.Errorf("latencies %+v", v)
	}
}
