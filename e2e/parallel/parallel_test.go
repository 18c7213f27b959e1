package parallel

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"penstock/lab/asroot"
	"penstock/lab/storage"
)

func TestMain(m *testing.M) { asroot.Main(m, "^$") }

const cache = "../../.cache"

var project = filepath.Join("..", "..", "sharedfs", "pom.xml")

// fileSystem is a way to start a file system on machines.
type fileSystem struct {
	layout string // penstock.sharedfs.layout
	start  func(*testing.T, *storage.Machines)
	asks   []string // the command that the layout runs, without the file
}

var fileSystems = map[string]fileSystem{
	"gluster": {"gluster", func(t *testing.T, m *storage.Machines) { m.Gluster(t, storage.GlusterOptions{}) }, []string{"getfattr", "--absolute-names", "-e", "text", "-n", "glusterfs.pathinfo", "--"}},
	"moosefs": {"moosefs", func(t *testing.T, m *storage.Machines) { m.Moose(t, storage.MooseOptions{}) }, []string{"mfsfileinfo"}},
}

// each runs a test on each file system that PENSTOCK_FILE_SYSTEMS names, separated by commas; default gluster. The file
// system runs on three hosts.
func each(t *testing.T, test func(t *testing.T, m *storage.Machines, fs fileSystem)) {
	names := os.Getenv("PENSTOCK_FILE_SYSTEMS")
	if names == "" {
		names = "gluster"
	}
	for name := range strings.SplitSeq(names, ",") {
		fs, known := fileSystems[name]
		if !known {
			t.Fatalf("PENSTOCK_FILE_SYSTEMS names %q: use gluster or moosefs", name)
		}
		t.Run(name, func(t *testing.T) {
			m := storage.ForTest(t, cache, 3)
			fs.start(t, m)
			test(t, m, fs)
		})
	}
}

// summary is Maven's last line about all tests.
var summary = regexp.MustCompile(`(?m)^\[(?:INFO|WARNING)\] Tests run: (\d+), Failures: 0, Errors: 0, Skipped: (\d+)$`)

// TestContract: Hadoop's contract tests and tests of FileContext pass on one of the hosts, and none is skipped.
func TestContract(t *testing.T) {
	// Compiled and downloaded here, because the hosts have no network but their own.
	if out, err := exec.CommandContext(t.Context(), "mvn", "-B", "-ntp", "-q", "-f", project, "-Dtest=PlacementTest", "test").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pom, err := filepath.Abs(project)
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, m *storage.Machines, fs fileSystem) {
		layoutForEveryone(t, m, fs)
		work := filepath.Join(m.Mount, "work")
		m.Run(t, 0, "mkdir", work)
		args := m.Hosts[0].Args("mvn", "-B", "-o", "-f", pom, "-Dwork="+work, "-Dtest=penstock.sharedfs.contract.*Test", "surefire:test")
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		found := summary.FindAllSubmatch(out, -1)
		if err != nil || len(found) == 0 {
			t.Fatalf("%v:\n%s", err, out)
		}
		last := found[len(found)-1]
		ran, _ := strconv.Atoi(string(last[1]))
		skipped, _ := strconv.Atoi(string(last[2]))
		t.Logf("%d tests", ran)
		if ran < 200 || skipped > 0 {
			t.Errorf("%d tests ran, %d of them were skipped", ran, skipped)
		}
	})
}

// layoutForEveryone checks that a user without special rights gets the same answer about a file's layout as root. So tasks need no helper.
func layoutForEveryone(t *testing.T, m *storage.Machines, fs fileSystem) {
	t.Helper()
	// The test's own folder is the owner's only.
	if err := os.Chmod(filepath.Dir(filepath.Dir(m.Mount)), 0o711); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.Mount, "everyone")
	m.Run(t, 0, "sh", "-c", `echo text >"$0"`, file)
	ask := append(slices.Clone(fs.asks), file)
	mine := m.Run(t, 0, ask...)
	theirs := m.Run(t, 0, append([]string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}, ask...)...)
	if mine == "" || mine != theirs {
		t.Errorf("root gets %q, and another user %q", mine, theirs)
	}
}
