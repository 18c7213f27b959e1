package device

import "time"

// Kind says what a stream's bytes are. The values are the wire's.
type Kind uint8

// The kinds.
const (
	Persistent   Kind = iota // HDFS's data
	Intermediate             // what tasks keep on local disks for a while
	Network                  // what is sent to another node
	kinds
)

var kindNames = [kinds]string{"persistent", "intermediate", "network"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// account is what was done for a flow's streams of one kind.
type account struct {
	opened   int64
	streamed [2]int64 // bytes that the streams have passed, by direction
	bytes    [2]int64 // of them, what the device has moved
	service  int64    // ns of the device's time
}

// KindSnapshot is a flow's account of one kind. Counts grow only.
type KindSnapshot struct {
	Kind     Kind
	Streamed [2]int64      // bytes that streams have read and written, from the page cache as well
	Bytes    [2]int64      // read, written by the device
	Service  time.Duration // of the device's time
}

// book enters what the device has done.
func (f *flow) book(k Kind, write bool, bytes, service int64) {
	f.kinds[k].bytes[direction(write)] += bytes
	f.kinds[k].service += service
}

// snapshotKinds gives the kinds that the flow has had streams of.
func (f *flow) snapshotKinds() (all []KindSnapshot) {
	for k, a := range f.kinds {
		if a.opened > 0 || a.streamed != [2]int64{} {
			all = append(all, KindSnapshot{Kind: Kind(k), Streamed: a.streamed, Bytes: a.bytes, Service: time.Duration(a.service)})
		}
	}
	return all
}
