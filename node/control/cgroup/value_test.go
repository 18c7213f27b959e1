package cgroup

import (
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

func TestKnobsReadAndWriteTheKernelsForms(t *testing.T) {
	const ioMax = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:1 rbps=1 wbps=2 riops=3 wiops=4\n"
	tests := []struct {
		knob         knob
		text, value  string
		set, written string
	}{
		{knob{fileMax, "8:16", "rbps"}, ioMax, "2097152", "max", "8:16 rbps=max"},
		{knob{fileMax, "8:16", "wbps"}, ioMax, "max", "7", "8:16 wbps=7"},
		{knob{fileMax, "8:1", "wiops"}, ioMax, "4", "5", "8:1 wiops=5"},
		{knob{fileMax, "8:0", "rbps"}, ioMax, "max", "max", "8:0 rbps=max"},
		{knob{keysV1[0], "7:3", ""}, "7:33 5\n7:3 10485760\n", "10485760", "0", "7:3 0"},
		{knob{keysV1[3], "7:3", ""}, "", "0", "9", "7:3 9"},
		{knob{fileBFQ, "8:16", ""}, "default 100\n8:16 400\n", "400", "default", "8:16 default"},
		{knob{fileWeight, "8:16", ""}, "default 100\n", "default", "200", "8:16 200"},
		{knob{fileBFQ1Device, "7:0", ""}, "7:0 300\n", "300", "default", "7:0 default"},
		{knob{fileBFQ1, "", ""}, "100\n", "100", "400", "400"},
		{knob{fileSubtree, "", "io"}, "cpu io memory", on, off, "-io"},
		{knob{fileSubtree, "", "io"}, "cpu iox", off, on, "+io"},
	}
	for _, test := range tests {
		if err := test.knob.check(); err != nil {
			t.Errorf("%v: %v", test.knob, err)
		}
		if got := test.knob.get(test.text); got != test.value {
			t.Errorf("%v of %q: %q, not %q", test.knob, test.text, got, test.value)
		}
		if got := test.knob.set(test.set); got != test.written {
			t.Errorf("%v: to set %q, %q is written, not %q", test.knob, test.set, got, test.written)
		}
	}
}

func TestTargetsAreRefusedUnlessWhole(t *testing.T) {
	good := target{V2, knob{fileMax, "8:16", "rbps"}, 77, "/a b/container_1"}
	if got, err := parseTarget(good.String()); err != nil || got != good {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{
		"", "v2 io.max 8:16 rbps 77", "v3 io.max 8:16 rbps 77 /a", "v2 cgroup.procs - - 77 /a", "v2 io.max - rbps 77 /a",
		"v2 io.max 8:16 - 77 /a", "v2 io.max 8:16 none 77 /a", "v2 io.max 8 rbps 77 /a", "v2 io.max 8:16 rbps x /a",
		"v1 blkio.bfq.weight 7:1 - 77 /a", "v2 io.weight 08:16 - 77 /a", "v2 cgroup.subtree_control - cpu 77 /a",
	} {
		if got, err := parseTarget(bad); err == nil {
			t.Errorf("%q was taken as %v", bad, got)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("v2 io.max 8:16 rbps 77 /a b/c")
	f.Add("v1 blkio.bfq.weight - - 1 /")
	f.Add("v2 cgroup.subtree_control - io 3 /")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parseTarget(text); err == nil && got.String() != text {
			t.Errorf("%q was read as %q", text, got)
		}
	})
}

// get returns the value that set has written, whatever else is in the file.
func FuzzKnob(f *testing.F) {
	f.Add("8:16 rbps=1 wbps=max riops=max wiops=max\n", "max")
	f.Add("default 100\n8:16 400", "400")
	f.Add("8:16", "x")
	f.Fuzz(func(t *testing.T, text, value string) {
		for _, k := range []knob{{fileMax, "8:16", "rbps"}, {fileWeight, "8:16", ""}, {keysV1[0], "8:16", ""}, {fileBFQ1, "", ""}, {fileSubtree, "", "io"}} {
			k.get(text)
			if value == "" || len(strings.Fields(value)) != 1 || strings.TrimSpace(value) != value || k.file == fileSubtree {
				continue
			}
			if got := k.get(k.set(value)); got != value {
				t.Errorf("%v: %q was written and %q read", k, value, got)
			}
		}
	})
}

func TestFindReadsTheTableOfMounts(t *testing.T) {
	mount := func(kind, point, root string, super ...string) *procfs.MountInfo {
		m := &procfs.MountInfo{FSType: kind, MountPoint: point, Root: root, SuperOptions: map[string]string{}}
		for _, s := range super {
			m.SuperOptions[s] = ""
		}
		return m
	}
	table := []*procfs.MountInfo{
		mount("cgroup", "/sys/fs/cgroup/memory", "/", "rw", "memory"),
		mount("cgroup", `/run/a\040b`, "/", "rw", "blkio", "cpu"),
		mount("cgroup2", "/run/part", "/docker/1", "rw"),
		mount("cgroup2", "/sys/fs/cgroup/unified", "/", "rw"),
		mount("cgroup2", "/run/other", "/docker/2", "rw"),
		mount("cgroup", "/run/outside", "/../..", "rw", "freezer"),
	}
	if h, ok := find(table, V1, "blkio"); !ok || h.Mount != "/run/a b" || h.base != "/" {
		t.Errorf("%+v, %v", h, ok)
	}
	if h, ok := find(table, V2, "io"); !ok || h.Mount != "/sys/fs/cgroup/unified" {
		t.Errorf("%+v, %v", h, ok)
	}
	if h, ok := find(table, V1, "freezer"); ok {
		t.Errorf("a hierarchy outside of the namespace was taken: %+v", h)
	}
	if h, ok := find(table, V1, "io"); ok {
		t.Errorf("%+v", h)
	}
	part, _ := find(table[2:3], V2, "io")
	for group, want := range map[string]string{"/docker/1": ".", "/docker/1/x": "x", "/docker/1/x/y z": "x/y z"} {
		if got, err := part.below(group); err != nil || got != want {
			t.Errorf("%s: %q, %v", group, got, err)
		}
	}
	long := "/docker/1/" + strings.Repeat("x", maxPath-len("/docker/1/"))
	if _, err := part.below(long); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "docker/1", "/docker/12", "/docker", "/", "/docker/1/", "/docker/1/../2", "/..", "/../x", "/docker/1//x", "/docker/1/\x00", long + "x"} {
		if got, err := part.below(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, got)
		}
	}
}

func FuzzBelow(f *testing.F) {
	f.Add("/", "/yarn/c")
	f.Add("/docker/1", "/docker/1/../2")
	f.Fuzz(func(t *testing.T, base, group string) {
		got, err := Hierarchy{Version: V2, base: base}.below(group)
		if err == nil && (strings.HasPrefix(got, "/") || got == ".." || strings.HasPrefix(got, "../") || strings.Contains(got, "/../")) {
			t.Errorf("%q below %q is %q", group, base, got)
		}
	})
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`/a\040b`: "/a b", `/a\134040`: `/a\040`, `/a\04`: `/a\04`, `\999`: `\999`, "": ""} {
		if got := unescape(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestLimitsHaveBounds(t *testing.T) {
	for _, good := range []Limits{{}, {ReadBytes: 1, WriteBytes: 1 << 62}, {ReadOps: OpsMax, WriteOps: OpsMax}} {
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []Limits{{ReadBytes: -1}, {WriteBytes: -1}, {ReadOps: OpsMax + 1}, {WriteOps: OpsMax + 1}, {WriteOps: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
