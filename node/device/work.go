package device

import (
	"time"

	"penstock/core/arbiter"
)

// result is the outcome of a request.
type result struct {
	request *arbiter.Request
	arbiter.Result
}

// work does the I/O of one request. It is the only code here that blocks.
func work(r *arbiter.Request) result {
	out := result{request: r}
	file := r.File().(facts)
	if r.Write {
		drainWork(file, r, &out.Result)
		return out
	}
	// The range is queried again at dispatch, because it may have been staged for another stream in
	// the meantime.
	out.Moved = file.Missing(r.Offset, r.Length)
	if out.Moved == 0 {
		return out
	}
	begin := time.Now()
	out.Err = file.Stage(r.Offset, r.Length)
	out.Latency = file.kept(time.Since(begin))
	return out
}

// keeper is a file whose I/O another process does.
type keeper interface {
	// Kept returns for how long the process has kept its place at the device.
	Kept() time.Duration
}

// kept returns how much of the time of a request the device was kept.
func (f facts) kept(took time.Duration) time.Duration {
	if k, ok := f.File.(keeper); ok {
		return min(took, k.Kept())
	}
	return took
}

func drainWork(file facts, r *arbiter.Request, out *arbiter.Result) {
	if file.Deleted() { // its pages need not reach the device
		out.Earlier = file.Saved(r.Offset, r.Length)
		return
	}
	// Bytes that a sync or the kernel has written before are charged as well.
	out.Moved = file.unsaved(r.Offset, r.Length)
	out.Earlier = r.Length - out.Moved
	if out.Moved == 0 {
		return
	}
	begin := time.Now()
	out.Err = file.Drain(r.Offset, r.Length)
	out.Latency = file.kept(time.Since(begin))
}
