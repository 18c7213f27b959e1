package sharedfs

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Setup){
		"":          func(*Setup) {},
		"--hosts 1": func(s *Setup) { s.Hosts = 1 }, "--hosts 9": func(s *Setup) { s.Hosts = 9 },
		"at least one size": func(s *Setup) { s.SizesMiB = nil }, "--sizes: 31": func(s *Setup) { s.SizesMiB = []int{31} },
		"--sizes: 64": func(s *Setup) { s.SizesMiB = []int{64, 64} }, "--sizes: 2049": func(s *Setup) { s.SizesMiB = []int{64, 2049} },
		"--rate":    func(s *Setup) { s.Rate = 999_999 },
		"--sorts 0": func(s *Setup) { s.Beside.Sorts = 0 }, "--sorts 101": func(s *Setup) { s.Beside.Sorts = 101 },
		"--at-once 0": func(s *Setup) { s.Beside.AtOnce = 0 }, "--at-once 25": func(s *Setup) { s.Beside.AtOnce = 25 },
		"--sort-size 7": func(s *Setup) { s.Beside.SortMiB = 7 }, "--storage-share 1": func(s *Setup) { s.Beside.Share = 1 },
		"--storage-share NaN": func(s *Setup) { s.Beside.Share = math.NaN() }, "--turn-size 63": func(s *Setup) { s.Beside.Turn = 63 << 10 },
		"--turn-size 1025": func(s *Setup) { s.Beside.Turn = 1025 << 10 },
		"--sorts 65":       func(s *Setup) { s.Beside.Sorts, s.Beside.SortMiB = 65, 64 },
	} {
		s := DefaultSetup()
		change(&s)
		if err := s.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	most := DefaultSetup()
	most.Beside.Sorts, most.Beside.SortMiB = 64, 64 // inputs and outputs fill half of the disks
	if err := most.Validate(); err != nil {
		t.Error(err)
	}
}

// Rows of the same run are compared, and each goal is at its bound.
func TestClaims(t *testing.T) {
	s := DefaultSetup()
	s.SizesMiB = []int{64}
	turn := func(row string, run int, j Job) Turn {
		j.SizeMiB = 64
		return Turn{Row: row, Run: run, Jobs: []Job{j}}
	}
	r := newResult(s, []Turn{
		turn("gluster-stock-near", 1, Job{RunS: 100, WrittenMB: 300}), turn("gluster-shared-near", 1, Job{RunS: 75, WrittenMB: 200, Maps: 10, LocalMaps: 9, NetworkMB: 30}),
		turn("gluster-shared-any", 1, Job{RunS: 80, NetworkMB: 60}), turn("gluster-stock-near", 2, Job{RunS: 10}),
	})
	met, found := 0, map[string]float64{}
	for _, c := range r.claims() {
		found[c.Name] = c.Value
		if c.Met != nil && *c.Met {
			met++
		}
	}
	for end, want := range map[string]float64{
		"in place: run time / with Hadoop's shuffle": 0.75, "in place: bytes written to disks / with Hadoop's shuffle": 2.0 / 3,
		"with locality: local maps": 0.9, "with locality: bytes over the network / without": 0.5, "stock-near: run time": 55,
	} {
		if got := found["gluster, TeraSort of 64 MiB, "+end]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", end, got, want)
		}
	}
	if met != 3 {
		t.Errorf("%d goals are met, want 3: %v", met, r.claims())
	}
	var table, page, doc bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "gluster-shared-near") || strings.Contains(table.String(), "moosefs") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
		t.Error(err)
	}
	if err := r.WriteJSON(&doc); err != nil || !json.Valid(doc.Bytes()) {
		t.Error(err)
	}
}

// PageRank and the parts of the machine have rows, claims and tables of their own, and the memory is drawn.
func TestFurtherRows(t *testing.T) {
	names := Rows()
	for _, name := range []string{"gluster-pagerank-local-any", "moosefs-pagerank-shared-near", "gluster-yarn-1-core-less", "gluster-yarn-2-cores-more"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no row %s in %v", name, names)
		}
	}
	s := DefaultSetup()
	turn := func(row string, size int, seconds float64, memory ...MemorySample) Turn {
		return Turn{Row: row, Run: 1, Jobs: []Job{{SizeMiB: size, RunS: seconds, WrittenMB: 1, Memory: memory}}}
	}
	memory := []MemorySample{{0, 100, 50}, {1, 300, 20}, {2, 200, 400}}
	r := newResult(s, []Turn{
		turn("gluster-pagerank-stock-near", 32, 40), turn("gluster-pagerank-shared-near", 32, 30), turn("gluster-pagerank-local-near", 32, 20),
		turn("gluster-yarn-1-core-less", 128, 100, memory...), turn("gluster-yarn-2-cores-less", 128, 60), turn("gluster-yarn-1-core-more", 128, 90),
	})
	found := map[string]float64{}
	for _, c := range r.claims() {
		found[c.Name] = c.Value
	}
	for name, want := range map[string]float64{
		"gluster, PageRank of 32 MiB, shared-near: run time":                                       30,
		"gluster, PageRank of 32 MiB, in place: run time / with Hadoop's shuffle":                  0.75,
		"gluster, PageRank of 32 MiB, in place: run time / on local disks":                         1.5,
		"gluster, TeraSort of 128 MiB, yarn-1-core-less: run time":                                 100,
		"gluster, TeraSort of 128 MiB, YARN with two cores: run time / with one, with less memory": 0.6,
		"gluster, TeraSort of 128 MiB, YARN with more memory: run time / with less, with one core": 0.9,
		"gluster, TeraSort of 128 MiB, yarn-1-core-less: most memory of YARN's processes":          300,
	} {
		if got, known := found[name]; !known || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	var table, page bytes.Buffer
	if err := r.WriteTable(&table); err != nil || strings.Count(table.String(), "PageRank of 32 MiB on") != 1 || strings.Count(table.String(), "TeraSort of") != 1 {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "Memory of YARN during TeraSort of 128 MiB") {
		t.Errorf("%v: the page has no chart of the memory", err)
	}
}

// A part of the machine is a number of CPUs that the machine must have, and memory for all hosts.
func TestPart(t *testing.T) {
	s := DefaultSetup()
	if got := (part{1, false}).limit(s); got != 4*(1024+512)*mib {
		t.Errorf("the limit is %d bytes", got)
	}
	if list, err := (part{1, false}).cpus(); err != nil || list == "" || strings.Contains(list, ",") {
		t.Errorf("one CPU is %q, %v", list, err)
	}
	if _, err := (part{100_000, false}).cpus(); err == nil {
		t.Error("the machine has 100,000 CPUs")
	}
}
