package hive

import (
	"reflect"
	"strings"
	"testing"
)

func TestSessions(t *testing.T) {
	const output = `2026-11-27 08:00:00,000 INFO  HiveConf [main]: found
SESSION
2026-11-27 08:00:01,000 INFO  YarnClientImpl [main]: Submitted application application_1700000000000_0001
ROW	0	3
ROW	1	a b
SESSION
2026-11-27 08:00:09,000 INFO  YarnClientImpl [main]: Submitted application application_1700000000000_0002
`
	want := []Session{
		{Application: "application_1700000000000_0001", Rows: [][]string{{"0", "3"}, {"1", "a b"}}},
		{Application: "application_1700000000000_0002"},
	}
	if got := parseSessions(output); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := parseSessions("nothing\n"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

const history = `{"entity":"tez_application_1","entitytype":"TEZ_APPLICATION_ATTEMPT","events":[{"eventtype":"AM_LAUNCHED"}]}` + "\x01\n" +
	`{"entity":"dag_1","events":[{"ts":1,"eventtype":"DAG_FINISHED"}],"otherinfo":{"status":"SUCCEEDED","counters":{"counterGroups":[
	{"counterGroupName":"org.apache.tez.common.counters.FileSystemCounter","counters":[{"counterName":"HDFS_BYTES_READ","counterValue":5}]},
	{"counterGroupName":"TaskCounter_Map_1","counters":[{"counterName":"SHUFFLE_BYTES","counterValue":7}]}]}}}` + "\x01\n" +
	`{"entity":"dag_2","events":[{"ts":1,"eventtype":"DAG_FINISHED"}],"otherinfo":{"status":"SUCCEEDED","counters":{"counterGroups":[
	{"counterGroupName":"org.apache.tez.common.counters.FileSystemCounter","counters":[{"counterName":"HDFS_BYTES_READ","counterValue":6}]},
	{"counterGroupName":"org.apache.tez.common.counters.TaskCounter","counters":[{"counterName":"SHUFFLE_BYTES","counterValue":7}]}]}}}` + "\x01\n"

func TestHistory(t *testing.T) {
	got, err := parseHistory([]byte(history))
	if want := map[string]int64{"HDFS_BYTES_READ": 11, "SHUFFLE_BYTES": 7}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for what, text := range map[string]string{
		"nothing":        "",
		"a failed graph": strings.Replace(history, "SUCCEEDED", "FAILED", 1),
		"half a record":  history[:len(history)-20],
	} {
		if got, err := parseHistory([]byte(text)); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
}
