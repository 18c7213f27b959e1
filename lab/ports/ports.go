// Package ports chooses ports for servers that restart at the same address.
//
// Problem: a port that the kernel chooses (listen on 0, close) is in the range that the kernel also
// uses for outgoing connections. After a test has killed the server, a connection of another
// program can take the port, and then the server cannot start again. Choice: ports below the
// default range (32768 and up), drawn at random so that parallel runs rarely choose the same port. A
// process draws no port twice, because the server that the port was drawn for may start later.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range that ports are drawn from: its first port and its size.
const first, count = 15000, 17000

// drawn has the ports that this process has drawn. If it has most of them, it is emptied.
var (
	mu    sync.Mutex
	drawn = map[int]bool{}
)

// Free returns n different ports that are free on 127.0.0.1 now.
func Free(n int) (ports []int, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	mu.Lock()
	defer mu.Unlock()
	if len(drawn)+n > count/2 {
		clear(drawn)
	}
	const tries = 1000
	for range n {
		var l net.Listener
		for range tries {
			port := first + rand.IntN(count)
			if drawn[port] {
				continue
			}
			if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
				drawn[port] = true
				break
			}
		}
		if l == nil {
			return nil, fmt.Errorf("no free port on 127.0.0.1 in %d tries: %w", tries, err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Address returns a free loopback address, host:port.
func Address() (string, error) {
	p, err := Free(1)
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + strconv.Itoa(p[0]), nil
}
