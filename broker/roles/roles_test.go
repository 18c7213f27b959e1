package roles

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const example = `
viewers: ["*"]
queue_administrators:
  - {name: bob, queues: [root.adhoc]}
  - {name: "uid:1001", queues: [root.etl, root.adhoc.x]}
operators: [alice, "uid:0"]
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roles.yaml")
	write(t, path, example)
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		who  Who
		want Given
	}{
		{Who{Name: "alice"}, Given{Role: Operator}},
		{Who{Name: "root", UID: "0"}, Given{Role: Operator}},
		{Who{Name: "bob"}, Given{QueueAdministrator, []string{"root.adhoc"}}},
		{Who{Name: "dave", UID: "1001"}, Given{QueueAdministrator, []string{"root.etl", "root.adhoc.x"}}},
		{Who{Name: "carol"}, Given{Role: Viewer}},
		{Who{Name: "uid:0"}, Given{Role: Viewer}}, // the name of a certificate never matches a number
		{Who{}, Given{}},
	} {
		if got := f.Of(test.who); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v: %+v, not %+v", test.who, got, test.want)
		}
	}
	bob := f.Of(Who{Name: "bob"})
	for queue, want := range map[string]bool{"root.adhoc": true, "root.adhoc.x": true, "root.adhocs": false, "root": false, "": false} {
		if bob.Administers(queue) != want {
			t.Errorf("bob and %q: not %v", queue, want)
		}
	}
	write(t, path, "operators: [bob]")
	if f.Of(Who{Name: "bob"}).Role != Operator || f.Of(Who{Name: "alice"}).Role != None {
		t.Error("the changed file is not in force")
	}
	write(t, path, "operators: []\n#")
	if f.Of(Who{Name: "bob"}).Role != Operator {
		t.Error("a wrong file is in force")
	}
	var none *File
	if none.Of(Who{}).Role != Operator {
		t.Error("without a file, somebody is no operator")
	}
}

func TestMistakesInRoles(t *testing.T) {
	for text, want := range map[string]string{
		"viewers: [a]":               "operators: name at least one",
		"operators: [a]\nviewer: []": "viewers",
		"operators: ['uid:x']":       "such as uid:1000",
		"operators: ['']":            "common name of a certificate",
		"operators: [a]\nqueue_administrators: [{name: b}]": "queues: give the paths",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there was opened")
	}
}
