package usageplot

import (
	"bytes"
	"strings"
	"testing"

	"penstock/ops/characterise"
)

func TestWrite(t *testing.T) {
	f, err := characterise.Read(strings.NewReader(`{"penstock_application_profile":1,"application":"sort","nodes":[{"name":"n","cores":2,"memory_bytes":1000,"disks":1}]}
{"node":0,"at_ns":0}
{"node":0,"at_ns":60000000000,"cpu_ns":100000000000}
{"node":0,"at_ns":120000000000,"cpu_ns":100000000000,"device_ns":60000000000}
`))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, []*characterise.File{f}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sort: disk-intensive; dashed: phases", ">memory<", ">network<"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}
