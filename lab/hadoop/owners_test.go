package hadoop

import "testing"

// A file's path alone determines its owner: by a block's number, or by the folder that YARN names
// after an application.
func TestOwners(t *testing.T) {
	const protected, aggressor = "protected", "aggressor"
	o := NewOwners()
	o.AddBlocks(protected, "blk_7", "blk_1073741825")
	o.AddApplications(protected, "application_1_0001")
	o.AddApplications(aggressor, "application_1_0002")
	const cache = "local/nm0/usercache/root/appcache/"
	for path, want := range map[string]string{
		"dfs/current/rbw/blk_7":                                                       protected,
		"dfs/current/rbw/blk_7_1001.meta":                                             protected,
		"dfs/current/BP-1/current/finalized/subdir0/subdir0/blk_1073741825":           protected,
		"dfs/current/BP-1/current/finalized/subdir0/subdir0/blk_1073741825_1001.meta": protected,
		"dfs/current/VERSION":                                                         "",
		"dfs/current/rbw/blk_8":                                                       "",
		cache + "application_1_0002/output/attempt_1_m_000000_0/file.out":             aggressor,
		cache + "application_1_0001/blockmgr-1/0c/shuffle_0_0_0.data":                 protected,
		cache + "application_1_0003/x":                                                "",
		cache + "application_1_00010/x":                                               "",
		"local/nm0/usercache/root/filecache/10/job.jar":                               "",
		"local/appcache/application_1_0002/container_1_0002_01_000001/spill":          aggressor,
	} {
		if got := o.Of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}
