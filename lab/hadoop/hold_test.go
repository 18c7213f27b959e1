package hadoop

import (
	"strings"
	"testing"
)

func TestTaskOf(t *testing.T) {
	for command, want := range map[string]string{
		"/usr/bin/java -Xmx400m org.apache.hadoop.mapred.YarnChild 127.0.0.1 4711 attempt_1700000000000_0007_m_000001_0 3": "application_1700000000000_0007",
		"java org.apache.hadoop.mapred.YarnChild 127.0.0.1 4711 attempt_1700000000000_0007_r_000000_0 9":                   "application_1700000000000_0007",
		"java org.apache.hadoop.mapreduce.v2.app.MRAppMaster":                                                              "",
		"bash -c attempt_1700000000000_0007_m_000001_0":                                                                    "",
		"": "",
	} {
		if got, ok := taskOf(strings.Fields(command)); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", command, got, ok)
		}
	}
}
