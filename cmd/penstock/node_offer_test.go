package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestNodeOffer(t *testing.T) {
	for args, want := range map[string]string{
		"--bandwidth 200M --node worker-1":             "penstock.io~1disk-bandwidth\", \"value\": \"200\"",
		"--bandwidth 200 --to mesos":                   "--resources='disk_bandwidth:200'",
		"--bandwidth 7M --to mesos --resource disk-bw": "disk-bw:7",
		"": "give --bandwidth", "--bandwidth 20G --node a": "give MB/s", "--bandwidth 0 --node a": "use 1 to",
		"--bandwidth 1 --to yarn": "use kubernetes or mesos", "--bandwidth 1 --node A": "its name in Kubernetes",
	} {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"node", "offer"}, strings.Fields(args)...))
		text := ""
		if err := root.ExecuteContext(t.Context()); err != nil {
			text = err.Error()
		}
		if text += out.String(); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", args, text, want)
		}
	}
}
