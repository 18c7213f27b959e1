package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/stand"
	"penstock/node/status"
)

// Applications: mine has a container on machine 0, others has none there, unknown is on the machine
// without Penstock.
const mine, others, unknown = 11, 12, 13

// TestAPeerOnAnotherMachine: names of HDFS clients on other machines are verified with the evidence
// of the nodes there.
func TestAPeerOnAnotherMachine(t *testing.T) {
	fixture.Eventually(t, "the other node reports", func() bool { return strings.Contains(logOf(t, shared.Broker.Log), "node=there") })
	contained := start(t, 0, container(t, client.Application(mine)))
	shell := start(t, 0, nil)
	far := start(t, 1, nil)

	t.Run("the name of its own application counts", func(t *testing.T) {
		p := judged(t, contained, mine, func(r status.Remote) int64 { return r.Confirmed })
		p.goesOn(t, client.Application(mine))
	})
	t.Run("a forged name of a shell does not count", func(t *testing.T) {
		p := judged(t, shell, mine, func(r status.Remote) int64 { return r.Refuted })
		p.goesOn(t, "unattributed")
		if text := logOf(t, shared.Nodes[0].Log); !strings.Contains(text, "claim refuted") || !strings.Contains(text, `node \"there\"`) {
			t.Error("the log does not report the refuted claim")
		}
	})
	t.Run("the name of another application does not count", func(t *testing.T) {
		p := judged(t, contained, others, func(r status.Remote) int64 { return r.Refuted })
		p.goesOn(t, "unattributed")
	})
	t.Run("the name counts if no node answers", func(t *testing.T) {
		p := judged(t, far, unknown, func(r status.Remote) int64 { return r.Unanswered })
		p.goesOn(t, client.Application(unknown))
	})
	t.Run("a rule names the service that a shell is", func(t *testing.T) {
		shared.Weights(t, "default: 1\nservices: [{name: writer, user: root, program: Client}]\n")
		p := judged(t, shell, mine, func(r status.Remote) int64 { return r.Confirmed })
		p.goesOn(t, "service:writer")
	})
	// The answering node counts an answer before the asking node does. So the asking node's
	// counters are read first.
	asked := look(t).Identity.Remote
	answered := lookThere(t).Identity.Remote
	t.Logf("asked: %+v", asked)
	t.Logf("answered: %+v", answered)
	if answered.Answered < asked.Confirmed+asked.Refuted+asked.Undecided {
		t.Error("more answers have come than were given")
	}
	fixture.Eventually(t, "the number of questions has reached the number of answers", func() bool {
		return look(t).Identity.Remote.Asked >= answered.Answered+answered.Refused
	})
	t.Run("the name counts if the node has died", func(t *testing.T) {
		fixture.Must(t, shared.Nodes[1].Kill())
		p := judged(t, shell, mine, func(r status.Remote) int64 { return r.Unanswered })
		p.goesOn(t, client.Application(mine))
	})
}

// container returns a command that runs a process in a container of an application, as a
// NodeManager does: the process leads a session, which the NodeManager's records name.
func container(t *testing.T, application string) []string {
	t.Helper()
	id := strings.Replace(application, "application", "container", 1) + "_01_000001"
	dir := filepath.Join(localDir(shared.Stand), "nmPrivate", application, id)
	fixture.Must(t, os.MkdirAll(dir, 0o755))
	return []string{"setsid", "--wait", "sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(dir, id+".pid")}
}

// start starts clients on a machine.
func start(t *testing.T, machine int, under []string) *client.JVM {
	t.Helper()
	m := shared.Network.Machines[machine]
	return shared.StartClients(t, client.Options{Temp: t.TempDir(), Log: shared.Path(fmt.Sprintf("clients-%d-%d.log", machine, len(under))),
		Under: append([]string{"nsenter", "--net=" + m.Path(), "--"}, under...)})
}

// put is a file that is being written. Its client has stopped in the middle.
type put struct {
	jvm    *client.JVM
	id     int
	was    status.Remote
	before map[string]int64 // written by flows
	done   chan error
}

const half, whole = 2 * fixture.MiB, 16 * fixture.MiB

// begin makes a client write the first half of a file under the name of an application.
func begin(t *testing.T, jvm *client.JVM, application, try int) *put {
	t.Helper()
	doc := look(t)
	p := &put{jvm: jvm, was: doc.Identity.Remote, done: make(chan error, 1)}
	reached := make(chan struct{}, 1)
	path := fmt.Sprintf("/%s-%d", strings.NewReplacer("/", "-").Replace(t.Name()), try)
	p.id = jvm.Do("put", fmt.Sprintf("path=%s attempt=%s seed=1 block=%d bytes=%d limit=%d", path, client.Attempt(application), 2*whole, whole, half),
		func(event, value string) {
			switch event {
			case "reached":
				select {
				case reached <- struct{}{}:
				default:
				}
			case "done":
				p.done <- nil
			case "error":
				p.done <- errors.New(value)
			}
		})
	select {
	case <-reached:
	case err := <-p.done:
		t.Fatalf("the client has ended: %v", err)
	case <-time.After(stand.Patience):
		t.Fatalf("nothing is written after %v", stand.Patience)
	}
	return p
}

// judged begins a put and waits until its name has the verdict that outcome counts. On a busy
// machine the answer may be late; then the client tries again with another file.
func judged(t *testing.T, jvm *client.JVM, application int, outcome func(status.Remote) int64) *put {
	t.Helper()
	const tries = 5
	for try := range tries {
		p := begin(t, jvm, application, try)
		var now status.Remote
		fixture.Eventually(t, "the other node was asked", func() bool {
			now = look(t).Identity.Remote
			return now.Asked > p.was.Asked
		})
		if outcome(now) > outcome(p.was) {
			p.before = written(look(t))
			return p
		}
		t.Logf("asked: %+v, before that: %+v", now, p.was)
		if now.Confirmed > p.was.Confirmed || now.Refuted > p.was.Refuted {
			t.Fatal("the verdict is another one")
		}
		p.finish(t)
	}
	t.Fatalf("no verdict in %d tries", tries)
	return nil
}

// finish lets the client write the rest.
func (p *put) finish(t *testing.T) {
	t.Helper()
	p.jvm.Limit(p.id, -1)
	select {
	case err := <-p.done:
		fixture.Must(t, err)
	case <-time.After(stand.Patience):
		t.Fatalf("not written after %v", stand.Patience)
	}
}

// goesOn lets the client write the rest; the bytes must be those of the given flow.
func (p *put) goesOn(t *testing.T, flow string) {
	t.Helper()
	p.finish(t)
	fixture.Eventually(t, "the bytes of the put are on "+flow+"'s account", func() bool {
		return written(look(t))[flow]-p.before[flow] >= whole-2*half
	})
	for name, bytes := range written(look(t)) {
		if more := bytes - p.before[name]; name != flow && more > half {
			t.Errorf("%s is charged with %d of its bytes", name, more)
		}
	}
}

// written returns the bytes that flows' streams have written to HDFS.
func written(doc *status.Document) map[string]int64 {
	all := map[string]int64{}
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			for _, k := range f.Kinds {
				if k.Kind == "persistent" {
					all[f.Name] += k.Streamed.Written
				}
			}
		}
	}
	return all
}

func look(t *testing.T) *status.Document {
	t.Helper()
	doc, err := status.Fetch(t.Context(), shared.Nodes[0].Address)
	fixture.Must(t, err)
	return doc
}

// lookThere returns the status of the other machine's daemon, which listens on that machine's
// loopback address.
func lookThere(t *testing.T) (doc status.Document) {
	t.Helper()
	h := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return shared.Network.Machines[0].Dial(ctx, address)
	}}}
	resp, err := h.Get("http://" + shared.Nodes[1].Address + "/status")
	fixture.Must(t, err)
	defer resp.Body.Close()
	fixture.Must(t, json.NewDecoder(resp.Body).Decode(&doc))
	return doc
}

func logOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	fixture.Must(t, err)
	return string(text)
}
