package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFetch(t *testing.T) {
	answer, code := "", 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
		w.Write([]byte(answer))
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	text, err := json.Marshal(Document{Version: Version, Mode: "observe", Devices: []Device{{Name: "sdb"}}})
	if err != nil {
		t.Fatal(err)
	}
	answer = string(text)
	if d, err := Fetch(t.Context(), address); err != nil || d.Mode != "observe" || d.Devices[0].Name != "sdb" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, bad := range []string{"", "{}", `{"version":2}`, "<html>"} {
		answer = bad
		if d, err := Fetch(t.Context(), address); err == nil {
			t.Errorf("%q gave %+v", bad, d)
		}
	}
	code = 404
	if _, err := Fetch(t.Context(), address); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("404: %v", err)
	}
	server.Close()
	if _, err := Fetch(t.Context(), address); err == nil || !strings.Contains(err.Error(), address+": connection refused, nothing listens there: start it with penstock node run") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := Fetch(t.Context(), "127.0.0.1:99999"); err == nil || !strings.Contains(err.Error(), "the port must be a number from 1 to 65535") {
		t.Errorf("no such port: %v", err)
	}
	for _, nobody := range []string{address, "a b"} {
		if _, err := Fetch(t.Context(), nobody); err == nil {
			t.Errorf("%q answers", nobody)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"devices":[{"flows":[{}]}]}`))
	f.Add([]byte(`{"version":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if d, err := Parse(body); err == nil && d.Version != Version {
			t.Errorf("%+v", d)
		}
	})
}
