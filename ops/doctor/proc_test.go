package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// procWith returns a folder with files of /proc, by their paths.
func procWith(t *testing.T, files map[string]string) string {
	t.Helper()
	mount := t.TempDir()
	for name, text := range files {
		name = filepath.Join(mount, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return mount
}

func TestReadMemory(t *testing.T) {
	files := map[string]string{
		"meminfo":                       "MemTotal:       24592180 kB\nMemFree:        10 kB\nMemAvailable:   20 kB\n",
		"sys/vm/dirty_background_bytes": "0\n", "sys/vm/dirty_background_ratio": "10\n",
		"sys/vm/dirty_bytes": "4096\n", "sys/vm/dirty_ratio": "0\n",
	}
	want := Memory{Available: 20 << 10, BackgroundRatio: 10, DirtyBytes: 4096}
	if m := readMemory(procWith(t, files)); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	for _, bad := range []string{"MemFree: 3 kB\n", "MemAvailable: x kB\n", "MemAvailable: -1 kB\n", "MemAvailable: 9223372036854775808\n"} {
		files["meminfo"] = bad
		if m := readMemory(procWith(t, files)); m.Err == nil {
			t.Errorf("%q gave %d", bad, m.Available)
		}
	}
	files["meminfo"] = "MemAvailable:   20 kB\n"
	files["sys/vm/dirty_ratio"] = "none\n"
	if m := readMemory(procWith(t, files)); m.Err == nil {
		t.Errorf("with a limit that is no number: %+v", m)
	}
	delete(files, "sys/vm/dirty_ratio")
	if m := readMemory(procWith(t, files)); m.Err == nil || !strings.Contains(m.Err.Error(), "dirty_ratio") || m.DirtyBytes != 4096 {
		t.Errorf("without a limit: %+v", m)
	}
	if m := readMemory(procWith(t, nil)); m.Err == nil {
		t.Errorf("without files: %+v", m)
	}
}

func TestInnermost(t *testing.T) {
	for text, want := range map[string]int{"Pid:\t9\nNSpid:\t9\t1\nFDSize:\t64\n": 1, "NSpid:\t70\n": 70, "NSpid:\n": 0, "NSpid:\tx\n": 0, "": 0} {
		if got := innermost(procWith(t, map[string]string{"9/status": text}), 9); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := innermost(procWith(t, nil), 9); got != 0 {
		t.Errorf("of a process that is gone: %d", got)
	}
}

func TestWorkers(t *testing.T) {
	const agent = "-javaagent:/opt/penstock/penstock-agent.jar=socket=/run/penstock/agent.sock,role="
	for _, c := range []struct {
		line string
		want Worker
		ok   bool
	}{
		{"/usr/bin/java -cp /a:/b -Xmx1g org.apache.spark.deploy.worker.Worker --webui-port 8081 spark://h:7077", Worker{}, true},
		{"java -Dspark.shuffle.service.enabled=true " + agent + "worker org.apache.spark.deploy.worker.Worker spark://h:7077", Worker{Serves: true, HasAgent: true}, true},
		{"java -javaagent:/p.jar=role=worker,socket=/x org.apache.spark.deploy.worker.Worker spark://h:7077", Worker{HasAgent: true}, true},
		{"java " + agent + "executor org.apache.spark.deploy.ExternalShuffleService", Worker{Serves: true, Service: true}, true},
		{"java org.apache.spark.deploy.master.Master", Worker{}, false},
		{"/bin/bash /opt/spark/bin/spark-class org.apache.spark.deploy.worker.Worker spark://h:7077", Worker{}, false},
		{"", Worker{}, false},
	} {
		w, ok := workerOf(0, strings.Fields(c.line))
		if ok != c.ok || ok && w != c.want {
			t.Errorf("%s: %+v, %v", c.line, w, ok)
		}
	}
}
