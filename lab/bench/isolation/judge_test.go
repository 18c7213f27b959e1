package isolation

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
			{Owners: map[string]judge.Usage{ownerProtected: {ReadBytes: 1e6}}},
			{Owners: map[string]judge.Usage{ownerAggressor: {WriteBytes: 3e6}, judge.FileSystem: {WriteBytes: 4000}}},
			{},
		})
	}
	v.finish(latencies([]disk.Record{{Op: disk.Read, Ended: 5e6}, {Op: disk.Write, Ended: 9e6}, {Op: disk.Discard, Ended: 99e6}}))
	if !slices.Equal(v.MBps[ownerAggressor], []float64{0, 6, 0}) || v.Bytes[ownerProtected] != 2e6 || v.Bytes[ownerOther] != 8000 ||
		v.Read[ownerProtected] != 2e6 || v.Written[ownerProtected] != 0 || v.Written[ownerAggressor] != 6e6 {
		t.Errorf("verdict %+v", v)
	}
	if v.DeviceRequest != 2 || v.LatencyP99MS != 9 || v.LatencyP50MS != 5 {
		t.Errorf("latencies %+v", v)
	}
}

// A file's path alone determines its owner: by a block's number, or by the folder that YARN names
// after an application.
func TestOwners(t *testing.T) {
	o := owners{blocks: map[string]string{"blk_7": ownerProtected},
		applications: map[string]string{"application_1_0001": ownerProtected, "application_1_0002": ownerAggressor}}
	const cache = "local/nm0/usercache/root/appcache/"
	for path, want := range map[string]string{
		"dfs/current/rbw/blk_7_1001.meta":                                    ownerProtected,
		"dfs/current/rbw/blk_8":                                              "",
		cache + "application_1_0002/output/attempt_1_m_000000_0/file.out":    ownerAggressor,
		cache + "application_1_0001/blockmgr-1/0c/shuffle_0_0_0.data":        ownerProtected,
		cache + "application_1_0003/x":                                       "",
		cache + "application_1_00010/x":                                      "",
		"local/nm0/usercache/root/filecache/10/job.jar":                      "",
		"local/appcache/application_1_0002/container_1_0002_01_000001/spill": ownerAggressor,
	} {
		if got := o.of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}
