package containers

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestAccounts(t *testing.T) {
	const us = time.Microsecond
	var a accounts
	if a.meanDelay() != 0 {
		t.Error("a delay without a look")
	}
	a.look(map[int]account{1: {100 * us, 10}, 2: {500 * us, 5}})
	if a.meanDelay() != 0 {
		t.Errorf("what was before the first look counts: %v", a.meanDelay())
	}
	a.look(map[int]account{1: {140 * us, 12}, 2: {500 * us, 5}, 3: {60 * us, 2}}) // a new thread counts from its start
	if got := a.meanDelay(); got != 25*us {
		t.Errorf("100 us in 4 dispatches: %v", got)
	}
	a.look(map[int]account{1: {140 * us, 12}, 3: {160 * us, 4}}) // thread 2 has ended, without more delay
	if got := a.meanDelay(); got != 200*us/6 {
		t.Errorf("200 us in 6 dispatches: %v", got)
	}
	a.look(map[int]account{1: {140 * us, 12}, 3: {30 * us, 1}}) // another thread has the id of thread 3
	if got := a.meanDelay(); got != 230*us/7 {
		t.Errorf("230 us in 7 dispatches: %v", got)
	}
	a.look(nil)
	if got := a.meanDelay(); got != 230*us/7 {
		t.Errorf("when all have ended: %v", got)
	}
}

func TestUsage(t *testing.T) {
	begin := time.Unix(1000, 0)
	from := reading{at: begin, cpu: 10 * time.Second, switches: 1000, disks: time.Second}
	to := reading{at: begin.Add(10 * time.Second), cpu: 25 * time.Second, switches: 6000, disks: 21 * time.Second}
	if got := from.until(to, 2, 4); got != (usage{Seconds: 10, CPU: 0.75, SwitchesPerSecond: 500, Disks: 0.5}) {
		t.Errorf("%+v", got)
	}
	if got := from.until(to, 1, 1); got.CPU != 1 || got.Disks != 1 {
		t.Errorf("%+v: a part is at most 1", got)
	}
	if got := from.until(from, 2, 4); got != (usage{}) {
		t.Errorf("without time: %+v", got)
	}
}

// A group's file names threads; some of them have ended.
func TestThreadsOf(t *testing.T) {
	dir := t.TempDir()
	if _, err := threadsOf(dir); err == nil {
		t.Error("a missing group")
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.threads"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := os.Getpid()
	write(strconv.Itoa(own) + "\n4194304\n") // one more than the greatest id
	all, err := threadsOf(dir)
	if err != nil || len(all) != 1 || all[own].dispatches == 0 {
		t.Errorf("%v, %v", all, err)
	}
	write("x\n")
	if _, err := threadsOf(dir); err == nil {
		t.Error("an id that is no number")
	}
}

func TestMeter(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.threads"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := newMeter(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.start(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // what the machine does in this time is measured
		u, delay, err := m.end()
		if err != nil || !(u.Seconds >= 0.05 && u.CPU >= 0 && u.CPU <= 1 && u.SwitchesPerSecond > 0) || delay < 0 {
			t.Errorf("%+v, %v, %v", u, delay, err)
		}
	}
	m.devices = []string{"none"}
	if err := m.start(time.Millisecond); err == nil {
		t.Error("a disk that does not exist")
	}
}
