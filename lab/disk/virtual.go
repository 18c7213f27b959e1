package disk

// Virtual is a disk that follows a Model on the caller's clock, for simulations. The code of its
// head and channels is that of the modelled disk.
type Virtual struct {
	arm      *arm
	channels *channels
	serving  *request // the request at the head; nil if the head is idle
	ended    underway // the requests at the channels, in order of their ends
	model    Model    // at full speed
}

// Ended is a request that the disk has finished.
type Ended struct {
	Ref     uint64 // set by the caller
	At      int64  // ns on the caller's clock
	Service int64  // ns of the disk's time
}

// NewVirtual returns an idle disk. The model must be valid.
func NewVirtual(m Model) *Virtual {
	v := &Virtual{model: m}
	if m.Channels > 0 {
		c := newChannels(m)
		v.channels = &c
	} else {
		v.arm = &arm{model: m}
	}
	return v
}

// SetSpeed sets the transfer rates to a factor, above 0, of those of the disk's model. Requests that the disk serves
// already end as before.
func (v *Virtual) SetSpeed(factor float64) {
	m := v.model
	m.BytesPerSecond = max(1, int64(factor*float64(m.BytesPerSecond)))
	m.WriteBytesPerSecond = int64(factor * float64(m.WriteBytesPerSecond))
	if v.channels != nil {
		v.channels.model = m
		return
	}
	v.arm.model = m
}

// Submit passes a request to the disk at the time now, which must never decrease.
func (v *Virtual) Submit(now int64, op Op, offset, length int64, ref uint64) {
	r := &request{op: op, offset: offset, length: length, arrived: now, ref: ref}
	if v.channels != nil {
		v.channels.submit(r)
		v.ended.add(r)
		return
	}
	v.arm.submit(r)
	if v.serving == nil {
		v.serving = v.arm.next(now)
	}
}

// Due returns the time when the next request ends. any is false if there is no request.
func (v *Virtual) Due() (at int64, any bool) {
	if v.serving != nil {
		return v.serving.ended, true
	}
	if len(v.ended) > 0 {
		return v.ended[0].ended, true
	}
	return 0, false
}

// Take removes and returns the next request that has ended by now. It returns false if no request
// has ended.
func (v *Virtual) Take(now int64) (Ended, bool) {
	if at, any := v.Due(); !any || at > now {
		return Ended{}, false
	}
	r := v.serving
	if r != nil {
		v.serving = v.arm.next(r.ended)
	} else {
		r = v.ended[0]
		v.ended = v.ended[1:]
	}
	return Ended{Ref: r.ref, At: r.ended, Service: r.service}, true
}
