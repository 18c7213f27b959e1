package hive

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/broker/applications"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/hive"
	"penstock/lab/stand"
)

// shared is a governed node with a Hive.
var (
	shared fixture.Stand
	server *hive.Hive
	// directory has the facts that a broker would know about the applications.
	directory *applications.Directory
)

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:   "hive",
		Public: true, // as in e2e/phases
		Disks:  []disk.Options{{Name: "disk", Size: 4 << 30}},
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", More: "network: {rate: 1000MiB}\n"}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{DataNodes: s.DataNodes("dfs"), TaskSlots: 3, Settings: hadoop.SmallDisks,
				// The table is one block. At the end of a block that is not the last, a task begins to read the next one, and the
				// DataNode sends more of it than the task takes.
				BlockSize: 64 * fixture.MiB,
				LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")}, Governed: s.Governed(0)}
		},
		Agents: []int{2},
	}, func(ctx context.Context) error {
		lib, err := hive.Fetch(ctx, shared.Spec.Cache, fixture.Say)
		if err != nil {
			return err
		}
		if server, err = hive.New(ctx, hive.Config{RunDir: shared.Path("hive"), Libraries: lib, Cluster: shared.Hadoop, Governed: shared.Governed(0)}); err != nil {
			return err
		}
		directory, err = applications.New(applications.Options{ResourceManagers: shared.Hadoop.ResourceManagerURLs(), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			go directory.Run(ctx, func([]string) {}) // until the tests end
		}
		return err
	})
}

// The table has rows*groups lines. Its text has about 28 MB.
const (
	tens, hundreds = 400, 500
	rows           = tens * hundreds
	groups         = 7
	payload        = 128 // bytes, in hexadecimal digits
)

var fill = []string{
	"CREATE TABLE lines (id INT, grp INT, payload STRING)",
	fmt.Sprintf("INSERT INTO lines SELECT i, i %% %d, sha2(cast(i AS STRING), 512) FROM (SELECT a.x * %d + b.y AS i FROM (SELECT 1 AS one) t"+
		" LATERAL VIEW posexplode(split(space(%d), ' ')) a AS x, ax LATERAL VIEW posexplode(split(space(%d), ' ')) b AS y, bx) n",
		groups, hundreds, tens-1, hundreds-1),
}

// ask sorts all lines twice by their payload, with a buffer so small that tasks spill, and joins them.
var ask = []string{
	"SET hive.auto.convert.join=false",
	"SET mapreduce.job.reduces=2",
	"SET tez.runtime.io.sort.mb=8",
	"SELECT a.grp, count(*), sum(a.id), sum(length(b.payload)) FROM lines a JOIN lines b ON a.payload = b.payload GROUP BY a.grp ORDER BY a.grp",
}

// answer returns the right answer.
func answer() (lines [][]string) {
	for g := range groups {
		count, sum := 0, 0
		for id := g; id < rows; id += groups {
			count++
			sum += id
		}
		lines = append(lines, []string{strconv.Itoa(g), strconv.Itoa(count), strconv.Itoa(sum), strconv.Itoa(count * payload)})
	}
	return lines
}

// TestBytes fills a table and joins it with itself, once with Tez's direct reads of local disks and once by the NodeManager. Each
// session is an application, whose bytes match Tez's own counters.
func TestBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if t.Failed() {
			tails(t)
		}
	})
	fixture.Must(t, shared.Forget())
	before := shared.Settled(t)
	sessions, err := server.Run(ctx, append(append([]string{}, fill...), ask...), append([]string{"SET tez.runtime.optimize.local.fetch=false"}, ask...))
	fixture.Must(t, err)
	for _, s := range sessions {
		_, err := shared.Hadoop.Application(s.Application).Wait(ctx)
		fixture.Must(t, err)
	}
	after := shared.Settled(t)
	for i, s := range sessions {
		name := []string{"direct", "by the NodeManager"}[i]
		if want := answer(); !reflect.DeepEqual(s.Rows, want) {
			t.Errorf("%s: the answer is %v, want %v", name, s.Rows, want)
		}
		if facts := directory.Facts(s.Application); !strings.HasPrefix(facts.Name, "HIVE-") || facts.Type != "TEZ" {
			t.Errorf("%s: %s is known as %+v", name, s.Application, facts)
		}
		n, err := server.Counters(s.Application)
		fixture.Must(t, err)
		t.Logf("%s: %s: %v", name, s.Application, n)
		hdfs, local := fixture.StreamedBetween(before, after, s.Application, "persistent"), fixture.StreamedBetween(before, after, s.Application, "intermediate")
		network := fixture.StreamedBetween(before, after, s.Application, "network")
		sent := n["SHUFFLE_BYTES"] - n["SHUFFLE_BYTES_DISK_DIRECT"]
		alike(t, name+": read from HDFS", hdfs.Read, n["HDFS_BYTES_READ"])
		alike(t, name+": written to HDFS", hdfs.Written, n["HDFS_BYTES_WRITTEN"])
		alike(t, name+": read from local disks", local.Read, n["FILE_BYTES_READ"]+sent)
		alike(t, name+": written to local disks", local.Written, n["FILE_BYTES_WRITTEN"])
		alike(t, name+": sent by the NodeManager", network.Read+network.Written, sent)
		if least := int64(2 * rows * payload); local.Read < least || local.Written < least {
			t.Errorf("%s: %+v on local disks, want at least %d", name, local, least)
		}
		if direct := n["SHUFFLE_BYTES_DISK_DIRECT"]; (direct > sent) != (i == 0) {
			t.Errorf("%s: of the shuffle, %d bytes were read directly and %d were sent", name, direct, sent)
		}
	}
	for _, kind := range []string{"persistent", "intermediate", "network"} {
		if p := fixture.StreamedBetween(before, after, "unattributed", kind); p.Read+p.Written > 0 {
			t.Errorf("unattributed: %+v of kind %s", p, kind)
		}
	}
}

// alike fails the test if Penstock's count and Tez's own differ by more than 1 %.
func alike(t *testing.T, what string, saw, counted int64) {
	t.Helper()
	fixture.AlikeWithin(t, 1, what, saw, counted)
}

// tails logs the ends of the containers' logs.
func tails(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(shared.Hadoop.LogDir(), "containers", "*", "*", "*", "*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if base := filepath.Base(file); err == nil && len(text) > 0 && (strings.HasPrefix(base, "sys") || strings.HasPrefix(base, "std")) {
			t.Logf("%s:\n%s", file, text[max(0, len(text)-3000):])
		}
	}
}
