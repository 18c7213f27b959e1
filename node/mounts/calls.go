package mounts

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// ErrHangs is the error of a call whose file system does not answer.
var ErrHangs = errors.New("its disk does not answer")

const (
	// maxCalls is the maximum number of calls on one device at a time. Each occupies a thread and a descriptor.
	maxCalls = 16
	// A device hangs if its oldest call has lasted for HangsAfter. New calls on the device then fail at
	// once.
	HangsAfter = time.Second
	// tableAge is the age at which the table of mounts is read again.
	tableAge = time.Second
)

// Calls makes calls on file systems. The zero value is ready for use.
type Calls struct {
	mu      sync.Mutex
	devices map[string]*device
	table   table
	readAt  time.Time
}

// device is a device with calls in progress or waiting.
type device struct {
	users int           // calls in progress, and those that wait for a place
	ended chan struct{} // closed and replaced when a call ends
	begun map[*time.Time]struct{}
}

// Do runs call, which uses the file system of the path as process pid sees it (0: this process), in a goroutine of
// its own. It returns call's result. It returns ErrHangs if call has not ended after patience; call then
// continues, and late, if not nil, gets its result. It also returns ErrHangs if an earlier call on this device hangs.
func Do[T any](c *Calls, pid int, path string, patience time.Duration, call func() T, late func(T)) (result T, err error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	key, err := c.deviceOf(pid, path, timeout.C)
	if err == nil {
		result, err = do(c, key, timeout.C, call, late)
	}
	if err != nil {
		return result, fmt.Errorf("%s: %w", path, err)
	}
	return result, nil
}

// do is Do for a device.
func do[T any](c *Calls, key string, timeout <-chan time.Time, call func() T, late func(T)) (result T, err error) {
	end, err := c.begin(key, timeout)
	if err != nil {
		return result, err
	}
	got, left := make(chan T), make(chan struct{})
	go func() {
		r := call()
		end()
		select {
		case got <- r:
		case <-left:
			if late != nil {
				late(r)
			}
		}
	}()
	select {
	case result = <-got:
		return result, nil
	case <-timeout:
		close(left)
		return result, ErrHangs
	}
}

// deviceOf returns the key of the device of a path. The links of another process are in that process's root file system, which may
// hang as well.
func (c *Calls) deviceOf(pid int, path string, timeout <-chan time.Time) (string, error) {
	if pid != 0 {
		process := filepath.Join("/proc", strconv.Itoa(pid))
		t := read(filepath.Join(process, "mountinfo"))
		if point := t.pointOf(filepath.Clean(path)); point != "/" {
			return t[point], nil
		}
		return do(c, t["/"], timeout, func() string { return t.deviceOf(filepath.Join(process, "root"), path) }, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.readAt) > tableAge {
		c.table, c.readAt = read("/proc/self/mountinfo"), time.Now()
	}
	return c.table.deviceOf("", path), nil
}

// begin takes a place for a call on a device; end gives it back.
func (c *Calls) begin(key string, timeout <-chan time.Time) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.devices[key]
	if d == nil {
		d = &device{ended: make(chan struct{}), begun: map[*time.Time]struct{}{}}
		if c.devices == nil {
			c.devices = map[string]*device{}
		}
		c.devices[key] = d
	}
	d.users++
	leave := func() {
		if d.users--; d.users == 0 {
			delete(c.devices, key)
		}
	}
	for !d.hangs() && len(d.begun) >= maxCalls {
		ended := d.ended
		c.mu.Unlock()
		timedOut := false
		select {
		case <-ended:
		case <-timeout:
			timedOut = true
		}
		c.mu.Lock()
		if timedOut {
			leave()
			return nil, ErrHangs
		}
	}
	if d.hangs() {
		leave()
		return nil, ErrHangs
	}
	begun := time.Now()
	d.begun[&begun] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(d.begun, &begun)
		close(d.ended) // the callers that wait look again
		d.ended = make(chan struct{})
		leave()
	}, nil
}

// hangs reports whether a call has lasted too long. Calls.mu is held.
func (d *device) hangs() bool {
	for begun := range d.begun {
		if time.Since(*begun) > HangsAfter {
			return true
		}
	}
	return false
}
