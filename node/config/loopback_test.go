package config

import (
	"strings"
	"testing"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]string{"": "off", "off": "off", "127.0.0.1:0": "127.0.0.1:0", "127.0.0.1:65535": "127.0.0.1:65535"} {
		text := "socket: s\n"
		if address != "" {
			text += "loopback: \"" + address + "\"\n"
		}
		if n, err := LoadNode(write(t, text)); err != nil || n.Loopback != want {
			t.Errorf("%q: %v, %v", address, n, err)
		}
	}
	for _, address := range []string{"on", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http", "0.0.0.0:1", "127.0.0.2:1", "[::1]:0", "[::ffff:127.0.0.1]:0",
		"localhost:0", ":0", "192.0.2.1:0"} {
		_, err := LoadNode(write(t, "socket: s\nloopback: \""+address+"\"\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2, column 1: loopback \""+address+"\": give 127.0.0.1 and a port") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
