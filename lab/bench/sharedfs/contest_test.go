package sharedfs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/disk"
)

// The queue has room for as many ApplicationMasters as TeraSorts may run at a time, after the scheduler has rounded the part up to whole
// containers, and these TeraSorts have room for all their maps.
func TestRoomOfTheQueue(t *testing.T) {
	for n := minHosts; n <= maxHosts; n++ {
		for atOnce := 1; atOnce <= maxAtOnce; atOnce++ {
			b := defaultBeside()
			b.AtOnce = atOnce
			containers := n * (1 + b.taskSlots(n))
			if got := int(math.Ceil(float64(float32(b.masters(n))) * float64(containers))); got != atOnce {
				t.Errorf("%d nodes, %d at once: room for %d ApplicationMasters", n, atOnce, got)
			}
			if containers < atOnce*(1+b.Files) {
				t.Errorf("%d nodes, %d at once: %d containers", n, atOnce, containers)
			}
		}
	}
}

// The processes of fio write first, and read when all of them have ended.
func TestJobs(t *testing.T) {
	text := defaultBeside().jobs(files{transfers: []string{"/a", "/b"}, probes: []string{"/c", "/d"}})
	sections := strings.Split(text, "\n[")
	var names []string
	for _, s := range sections {
		name, _, _ := strings.Cut(strings.TrimPrefix(s, "["), "]")
		names = append(names, name)
	}
	want := "global transfer-write0 transfer-write1 probe-write0 probe-write1 transfer-read0 transfer-read1 probe-read0 probe-read1"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("jobs %s, want %s", got, want)
	}
	if strings.Count(text, "stonewall") != 1 || !strings.Contains(sections[5], "stonewall=1\nfilename=/a\nrw=read\nbs=262144\nsize=32m") {
		t.Errorf("the first reader does not wait for the writers:\n%s", text)
	}
}

// fioJob returns a job in fio's format json+, with one latency each for two requests.
func fioJob(name, direction string, bytes, millis int64, fast, slow int) string {
	other := map[string]string{"read": "write", "write": "read"}[direction]
	return fmt.Sprintf(`{"jobname": %q, "error": 0, %q: {"io_bytes": %d, "runtime": %d, "clat_ns": {"N": 2, "percentile": {"99.000000": 1}, "bins": {"%d": 1, "%d": 1}}},
%q: {"io_bytes": 0, "runtime": 0, "clat_ns": {"N": 0}}}`, name, direction, bytes, millis, fast, slow, other)
}

func TestParseFio(t *testing.T) {
	doc := "fio: a remark\n{\"fio version\": \"fio-3.33\", \"jobs\": [" + strings.Join([]string{
		fioJob("transfer-write0", "write", 6_000_000, 6000, 1_000_000, 3_000_000), fioJob("transfer-write1", "write", 3_000_000, 6000, 1_000_000, 2_000_000),
		fioJob("probe-write0", "read", 8192, 6000, 500_000, 600_000), fioJob("transfer-read0", "read", 12_000_000, 6000, 4_000_000, 5_000_000),
		fioJob("probe-read0", "read", 8192, 6000, 700_000, 9_000_000),
	}, ",\n") + "]}\n"
	m, err := parseFio(doc)
	if err != nil {
		t.Fatal(err)
	}
	if m.writes.bytes != 9_000_000 || m.writes.seconds != 12 || m.reads.bytes != 12_000_000 || m.probes.bytes != 4*4096 {
		t.Errorf("%+v", m)
	}
	all := m.transfers()
	for q, want := range map[float64]time.Duration{0.3: time.Millisecond, 0.5: 2 * time.Millisecond, 0.99: 5 * time.Millisecond} {
		if got := all.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if all.requests() != 6 || m.probes.quantile(0.99) != 9*time.Millisecond || (tally{}).quantile(0.99) != 0 {
		t.Errorf("%d requests, probes %v", all.requests(), m.probes)
	}
	var twice measured
	twice.plus(m)
	twice.plus(m)
	if twice.transfers().requests() != 12 || m.transfers().requests() != 6 {
		t.Error("a sum changes what it adds up")
	}
	for want, text := range map[string]string{
		"no figures": "fio: pid=1, err=5\n", "fio's output": doc[:len(doc)/2], "error number 5": strings.Replace(doc, `"error": 0`, `"error": 5`, 1),
		"fio has written 0 bytes": `{"jobs": []}`, "a latency": strings.Replace(doc, `"1000000"`, `"fast"`, 1),
	} {
		if _, err := parseFio(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Rows of the same run are compared, and each goal is at its bound.
func TestContestClaims(t *testing.T) {
	s := DefaultSetup()
	quantum := s.quantumTime().Seconds() * 1e3
	if least := 1e3 * float64(s.Beside.Turn) / float64(s.Rate); quantum < least || quantum > least+20 {
		t.Errorf("a quantum takes %.1f ms, its transfer %.1f ms", quantum, least)
	}
	if disk.HDD(s.Rate) != s.model() {
		t.Error("the model has changed")
	}
	turn := func(between string, run int, mbs, p99, probe, makespan, active float64) Turn {
		return Turn{Row: besideRow(between), Run: run, Contest: &Contest{Clients: Clients{MBs: mbs, P99MS: p99, ProbeP99MS: probe, Active: active},
			Sorts: Sorts{MakespanS: makespan, MeanS: makespan / 2}}}
	}
	r := newResult(s, []Turn{
		turn(floor, 1, 20, 100, 50, 100, 0.5), turn(native, 1, 10, 100+4*quantum, 50, 120, 0.5),
		turn(segregated, 1, 19, 100+quantum, 50+quantum, 100/(1-s.Beside.Share*0.5), 0.5), turn(native, 2, 1, 1, 1, 1, 1),
	})
	found, met := map[string]float64{}, 0
	for _, c := range r.claims() {
		found[c.Name] = c.Value
		if c.Met != nil && math.Abs(c.Value-*c.Goal) < 1e-9 {
			met++
		}
	}
	for end, want := range map[string]float64{
		"segregated: throughput / floor": 0.95, "native: throughput / floor": 0.5, "segregated: p99 of a transfer beyond that of floor": 1,
		"native: p99 of a transfer beyond that of floor": 4, "segregated: p99 of 4 KiB beyond that of floor": 1,
		"segregated: makespan of the TeraSorts / what the weights allow": 1, "native: makespan of the TeraSorts": 60.5,
	} {
		if got, has := found["gluster, storage clients beside 12 TeraSorts of 32 MiB, 6 at once, share 0.99, turns of 256 KiB, "+end]; !has || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", end, got, want)
		}
	}
	if met != 4 {
		t.Errorf("%d goals are at their bounds, want 4: %v", met, r.claims())
	}
	var table, doc bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "gluster-clients-segregated") || strings.Contains(table.String(), "TeraSort of ") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := r.WriteJSON(&doc); err != nil || !json.Valid(doc.Bytes()) {
		t.Error(err)
	}
	many := 0
	for _, c := range KnownClaims() {
		if strings.Contains(c.Name, "beside 50 TeraSorts of") {
			many++
		}
	}
	if many != 15 {
		t.Errorf("%d claims are known of the large measurement", many)
	}
}
