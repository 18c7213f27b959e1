package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// many returns a list of n addresses.
func many(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("'127.0.0.1:%d'", 9700+i))
	}
	return strings.Join(all, ", ")
}

func TestBrokerSection(t *testing.T) {
	load := func(section string) (*Node, error) {
		file := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(file, []byte("socket: agent.sock\nbroker: "+section+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadNode(file)
	}
	n, err := load(`{addresses: ["127.0.0.1:9717"]}`)
	if err != nil || n.Broker.Node == "" || time.Duration(n.Broker.Period) != time.Second {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = load(`{addresses: ["broker-1:9717"], node: n1, ca: ca.pem, cert: n1.pem, key: n1.key}`); err != nil || !filepath.IsAbs(n.Broker.Key) {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = load(`{addresses: ["broker-1:9717"], node: n1, ca: ca.pem, cert: n1.pem, key: n1.key, peers: "0.0.0.0:9718"}`); err != nil || n.Broker.Peers == "" {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = load(`{addresses: [` + many(16) + `]}`); err != nil || len(n.Broker.Addresses) != 16 {
		t.Errorf("%+v, %v", n, err)
	}
	for section, want := range map[string]string{
		"{}":                                  "addresses: give 1 to 16",
		`{addresses: [` + many(17) + `]}`:     "addresses: give 1 to 16",
		`{addresses: ["[::1]:1", "[::1]:1"]}`: "is there twice",
		`{addresses: ["[::1]:1"], peers: "0.0.0.0:9718"}`:                      "other nodes must be authenticated",
		`{addresses: ["[::1]:1"], ca: a, cert: b, key: c, peers: "here:9718"}`: "give IP:port",
		`{addresses: ["[::1]:1"], ca: a, cert: b, key: c, peers: "0.0.0.0"}`:   "give IP:port",
		`{addresses: ["[::1]:1"], ca: a, cert: b, key: c, peers: ":65536"}`:    "give IP:port",
		`{addresses: ["[::1]:1"], ca: a, cert: b, key: c, peers: "0.0.0.0:0"}`: "port 0 does not work",
		`{addresses: ["nowhere"]}`:                                             "give host:port",
		`{addresses: ["far:9717"]}`:                                            "on another machine: give ca, cert and key",
		`{addresses: ["[::1]:1"], ca: x}`:                                      "give all of ca, cert and key",
		`{addresses: ["[::1]:1"], period: 10ms}`:                               "use 100ms to 30s",
		`{addresses: ["[::1]:1"], period: 31s}`:                                "use 100ms to 30s",
		`{addresses: ["[::1]:1"], node: ` + strings.Repeat("n", 257) + `}`:     "1 to 256 bytes",
	} {
		if _, err := load(section); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", section, err, want)
		}
	}
}
