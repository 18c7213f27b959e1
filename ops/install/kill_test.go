package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errKilled = errors.New("killed")

// killedAt stops a run before its nth step on disk, as kill -9 would, and reports whether it came
// that far.
func killedAt(n int, o *Options) *bool {
	var killed bool
	o.step = func(string, string) error {
		if n--; n < 0 {
			killed = true
			return errKilled
		}
		return nil
	}
	return &killed
}

// If a run is killed at any step, every file is complete, and the next run, of either kind, has the
// same result as an undisturbed one.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	other := func(o Options) Options {
		o.AgentJar, o.Socket = "/srv/penstock/penstock-agent.jar", "/srv/penstock/agent.sock"
		return o
	}
	for _, name := range []string{"managed", "missing", "twice", "crlf", "empty"} {
		before := filepath.Join("testdata", name, "before")
		pristine := copied(t, before)
		original := snapshot(t, pristine)
		applied(t, options(pristine))
		first := snapshot(t, pristine)
		applied(t, other(options(pristine)))
		second := snapshot(t, pristine)
		for _, c := range []struct {
			what       string
			prepare    func(Options)
			disturbed  func(Options) (*Report, error)
			mayContain []map[string]string
		}{
			{"apply", func(Options) {}, Apply, []map[string]string{original, first}},
			{"apply with other paths", func(o Options) { applied(t, o) },
				func(o Options) (*Report, error) { return Apply(other(o)) }, []map[string]string{first, second}},
			{"remove", func(o Options) { applied(t, o) }, Remove, []map[string]string{first, original}},
		} {
			for n := 0; ; n++ {
				var reached bool
				for _, after := range []struct {
					what string
					do   func(Options) (*Report, error)
					end  map[string]string
				}{{"remove", Remove, original}, {"apply", Apply, first}, {"other paths", func(o Options) (*Report, error) { return Apply(other(o)) }, second}} {
					dir := copied(t, before)
					o := options(dir)
					c.prepare(o)
					disturbed := o
					killed := killedAt(n, &disturbed)
					_, err := c.disturbed(disturbed)
					if reached = *killed; reached != (err != nil) || err != nil && !errors.Is(err, errKilled) {
						t.Fatalf("%s, step %d: %v", c.what, n, err)
					}
					for file, content := range snapshot(t, dir) {
						if strings.HasSuffix(file, temporary) || filepath.Base(file) == StateFile || strings.HasPrefix(content, "d") {
							continue
						}
						whole := false
						for _, form := range c.mayContain {
							whole = whole || form[file] == content
						}
						if !whole {
							t.Errorf("%s of %s, killed at step %d, leaves %s as\n%s", c.what, name, n, file, content)
						}
					}
					if _, err := after.do(o); err != nil {
						t.Errorf("%s of %s, killed at step %d, then %s: %v", c.what, name, n, after.what, err)
						continue
					}
					same(t, c.what+" killed, then "+after.what, snapshot(t, dir), after.end)
					if t.Failed() {
						t.Fatalf("%s of %s, killed at step %d, then %s", c.what, name, n, after.what)
					}
				}
				if !reached {
					if n < 4 {
						t.Errorf("%s of %s has only %d steps", c.what, name, n)
					}
					break
				}
			}
		}
	}
}

// Changes that others make after an interruption stay, also in a file that the run had not yet
// reached.
func TestOthersWriteWhileInterrupted(t *testing.T) {
	for n := range 40 {
		dir := copied(t, "testdata/apache/before")
		o := options(dir)
		killed := killedAt(n, &o)
		if _, err := Apply(o); *killed != (err != nil) {
			t.Fatal(err)
		}
		for _, name := range []string{"hadoop/mapred-site.xml", "spark/spark-defaults.conf"} {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			more := "spark.theirs 1\n"
			if strings.HasSuffix(name, "xml") {
				more = "<!-- theirs -->\n"
			}
			put(t, dir, name, string(data)+more)
		}
		if _, err := Remove(options(dir)); err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		for name, content := range snapshot(t, dir) {
			if strings.Contains(content, "penstock") {
				t.Errorf("step %d: %s still has\n%s", n, name, content)
			}
			if base := filepath.Base(name); (base == "mapred-site.xml" || base == "spark-defaults.conf") && !strings.Contains(content, "theirs") {
				t.Errorf("step %d: %s lost others' lines:\n%s", n, name, content)
			}
		}
	}
}

func TestASpoiltStateFile(t *testing.T) {
	for what, content := range map[string]string{
		"cannot be read": "{", "version 9": `{"version":9}`, "outside": `{"version":1,"files":[{"path":"../x"}]}`,
	} {
		dir := scratch(t)
		put(t, dir, "hadoop/"+StateFile, content)
		original := snapshot(t, dir)
		for _, run := range []func(Options) (*Report, error){Apply, Remove} {
			if _, err := run(options(dir)); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		same(t, what, snapshot(t, dir), original)
	}
}
