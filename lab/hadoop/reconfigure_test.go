package hadoop

import (
	"strings"
	"testing"
)

func TestParseReconfigStatus(t *testing.T) {
	const read, write = "dfs.datanode.data.read.bandwidthPerSec", "dfs.datanode.data.write.bandwidthPerSec"
	const head = "Reconfiguring status for node [127.0.0.1:1]: started at Sun Nov 22 00:00:01 UTC 2026"
	const end = " and finished at Sun Nov 22 00:00:02 UTC 2026.\n"
	const success = "SUCCESS: Changed property " + write + "\n\tFrom: \"\"\n\tTo: \"4000000\"\n"
	for _, c := range []struct {
		out     string
		changed []string
		done    bool
		err     string
	}{
		{head + " and is still running.\n", []string{write}, false, ""},
		{head + end + success, []string{write}, true, ""},
		{head + end + success, []string{read, write}, true, read},
		{head + end, []string{write}, true, "3.4 and 3.5"},
		{head + end + "FAILED: Change property " + write + "\n\tFrom: \"\"\n\tTo: \"x\"\n\tError: Bad\n", []string{write}, true, "Error: Bad"},
		{"Reconfiguring status for node [127.0.0.1:1]: no task was found.\n", []string{write}, false, "no reconfiguration"},
	} {
		done, err := parseReconfigStatus(c.out, c.changed)
		if done != c.done || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: done %v, error %v; want %v, %q", c.out, done, err, c.done, c.err)
		}
	}
}
