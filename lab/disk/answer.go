package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// alarm wakes one waiting goroutine at a set time, which may be changed during the wait. It uses a
// kernel timer, because the runtime's timers are up to a millisecond late.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("the disk's timer: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// set sets the alarm to a time on the clock of Monotonic, which must be positive. An alarm in the past
// goes off at once.
func (a *alarm) set(at int64) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &when, nil)
}

// wait returns when the alarm has gone off. An error means that the alarm will never go off.
func (a *alarm) wait() error {
	var times [8]byte
	_, err := a.file.Read(times[:])
	return err
}

// accept passes a request to the channels; answer will end the request. The caller must hold the
// lock.
func (d *device) accept(r *request) {
	d.channels.submit(r)
	d.underway.add(r)
	if d.underway[0] == r {
		d.alarm.set(r.ended)
	}
}

// answer ends the requests of a disk with channels when their time has come.
func (d *device) answer() {
	for {
		if err := d.alarm.wait(); err != nil {
			panic(fmt.Sprint("the disk's timer has failed, so no request could be answered: ", err))
		}
		d.mu.Lock()
		ended := d.underway.take(Monotonic())
		if len(d.underway) > 0 {
			d.alarm.set(d.underway[0].ended)
		}
		d.mu.Unlock()
		for _, r := range ended {
			d.finish(r)
		}
	}
}

// finish logs a request and then answers it.
func (d *device) finish(r *request) {
	d.log.add(Record{
		Submitted: r.arrived, Ended: r.ended, Service: r.service,
		Offset: r.offset, Length: r.length, Op: r.op,
	})
	close(r.done)
}
