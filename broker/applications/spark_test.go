package applications

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const master = `{"url":"spark://m:7077","workers":[{"id":"w","resources":{}}],"cores":4,
 "activeapps":[{"id":"app-20240102030405-0001","starttime":1,"name":"report","cores":4,"user":"carol","memoryperexecutor":1024,"resourcesperexecutor":[],"state":"RUNNING","duration":5},
   {"id":"driver-1","name":"x","user":"x","state":"RUNNING"}],
 "completedapps":[{"id":"app-20240102030405-0000","name":"old","user":"bob","state":"FINISHED"}],
 "activedrivers":[],"status":"%s"}`

// TestSpark: only the master with status ALIVE counts. An application that has ended is only
// reported if it was looked up.
func TestSpark(t *testing.T) {
	start := func(status string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/json/" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintf(w, master, status)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	d, _ := directory(t, Options{SparkMasters: []string{start("STANDBY"), start("ALIVE")}})
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	f := d.Facts("app-20240102030405-0001")
	if f.User != "carol" || f.Name != "report" || f.Type != "SPARK" || f.Queue != "" {
		t.Errorf("%+v", f)
	}
	if len(d.apps) != 1 {
		t.Errorf("%+v", d.List())
	}
	if f := d.Facts("app-20240102030405-0000"); f.User != "" {
		t.Errorf("%+v", f)
	}
	d.Facts("app-20240102030405-0009")
	if changed := d.lookUp(t.Context(), d.sources[0]); changed != nil {
		t.Errorf("a master that looks up: %v", changed)
	}
	if err := list(t, d); err != "" {
		t.Fatal(err)
	}
	if f := d.Facts("app-20240102030405-0000"); f.User != "bob" {
		t.Errorf("%+v", f)
	}
	if len(d.pending) != 0 {
		t.Errorf("still wanted: %v", d.pending)
	}

	d, _ = directory(t, Options{SparkMasters: []string{start("STANDBY"), start("RECOVERING")}})
	if err := list(t, d); !strings.Contains(err, `"RECOVERING", not ALIVE`) || len(d.apps) != 0 {
		t.Errorf("%s, %d", err, len(d.apps))
	}
}

func FuzzSpark(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(master, "ALIVE")))
	f.Add([]byte(`{"activeapps":null,"status":"ALIVE"}`))
	f.Add([]byte(`{"status":"ALIVE","completedapps":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		apps, err := parseSpark(json.NewDecoder(strings.NewReader(string(text))))
		if err != nil && apps != nil {
			t.Fatal("applications with an error")
		}
		for _, a := range apps {
			if len(a.Flow)+len(a.Name)+len(a.User)+len(a.State) > 4*maxName {
				t.Fatalf("%+v", a)
			}
		}
	})
}
