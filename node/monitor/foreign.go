package monitor

// Foreign counts the bytes of one direction that a device moved outside of the governed flows.
// The zero value is ready; counting begins with the first observation.
//
// Let dev be the device's bytes, and own the bytes that the daemon moved or charged. Then dev -
// own is the foreign bytes plus the bytes in transit: done by the device, or by the kernel before
// their turn, and not yet charged. So
//
//	dev - own - transit  <=  foreign  <=  dev - own
//
// and the count follows the lower bound when that rises. So the count is late by transit (a
// constant while the load is steady) and does not grow from noise. If the count exceeds the upper
// bound, the daemon has charged for bytes that never reached the device; counting then continues
// from the upper bound, and the count itself never falls.
//
// Its errors:
//   - counted as foreign although HDFS caused it: the file system's metadata and
//     journal, and the checksum files of blocks being written (about 1 % of
//     the data), which the kernel writes out by itself;
//   - counted late or, if the daemon ends before, not at all: what a growing
//     backlog hides, since the kernel may have written any of it already;
//   - hidden: foreign bytes up to what the daemon charged in excess: two
//     applications that staged the same range at once, holes in a file, and
//     pages written that were deleted before the device saw them.
type Foreign struct {
	seen  int64 // the foreign bytes so far, on the scale of dev - own
	begun bool
	last  int64 // the device's count
}

// Observe takes a reading of both counts, device first. It returns how many bytes have proved to be
// foreign since the previous reading, never a negative number. transit is the most bytes that the
// device can have moved without the daemon having charged them yet. slack is the most bytes that
// the daemon can have charged between the reading of device and the reading of own.
func (f *Foreign) Observe(device, own, transit, slack int64) int64 {
	upper := device - own
	if !f.begun || device < f.last { // the first reading, or another device under the same name
		f.begun, f.seen, f.last = true, upper, device
		return 0
	}
	f.last = device
	f.seen = min(f.seen, upper+slack)
	bytes := max(0, upper-transit-f.seen)
	f.seen += bytes
	return bytes
}
