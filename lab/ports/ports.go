// Package ports chooses ports for servers that are to come back where they were.
//
// Problem: a port of the kernel's choice (listen on 0, close) lies in the range that it also
// hands out to outgoing connections. Between the choice and the server's start, and above all
// while a server is away because a test has killed it, any other program's connection can have
// it, and the server does not come up again. What is chosen: ports below that range, as it
// is by default (32768 and up), drawn at random so that runs side by side do not meet.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are drawn from: first, and how many.
const first, count = 15000, 17000

// Free chooses n ports that are free on 127.0.0.1 now, all different.
func Free(n int) (ports []int, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	const tries = 1000
	for range n {
		var l net.Listener
		for range tries {
			if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(first+rand.IntN(count))); err == nil {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("no free port on 127.0.0.1 in %d tries: %w", tries, err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Address chooses a free address on loopback, host:port.
func Address() (string, error) {
	p, err := Free(1)
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + strconv.Itoa(p[0]), nil
}
