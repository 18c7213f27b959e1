package device

import "time"

// work does one request's I/O; it is the only code here that blocks.
func work(r *request) result {
	out := result{request: r}
	if r.write {
		return drainWork(r, out)
	}
	// Asked again at dispatch: another task of the application may have had
	// the range staged while this request was queued.
	out.bytes = missingBytes(r.file, r.offset, r.length)
	if out.bytes == 0 {
		return out
	}
	begin := time.Now()
	out.err = r.file.Stage(r.offset, r.length)
	out.latency = time.Since(begin)
	out.io = out.err == nil
	return out
}

func drainWork(r *request, out result) result {
	if r.file.Deleted() { // its pages need not reach the device any more
		out.bytes = savedBytes(r.file, r.offset, r.length)
		return out
	}
	out.bytes = r.length
	pages, err := r.file.Query(r.offset, r.length)
	if err == nil && pages.Unsaved == 0 {
		return out // hsync or the kernel was faster: the flow pays all the same
	}
	begin := time.Now()
	out.err = r.file.Drain(r.offset, r.length)
	out.latency = time.Since(begin)
	out.io = out.err == nil
	return out
}

// savedBytes is how much of what was written to a range the kernel has written out by
// itself, whether or not the page cache still has it. An error counts as nothing.
func savedBytes(f File, off, length int64) int64 {
	size, err := f.Size()
	if err != nil {
		return 0
	}
	if length = min(length, size-off); length <= 0 {
		return 0
	}
	pages, err := f.Query(off, length)
	if err != nil {
		return 0
	}
	return max(0, length-pages.Unsaved)
}
