// Package status is what the node daemon says of itself at GET /status, and how
// to ask for it.
//
// Problem: an operator's question is seldom one number. Why is this application
// slow needs its share beside what it is due, who else was active, what the
// device does, and what of it was not Penstock's. Prometheus' text has the
// counters, but a share is a ratio over one and the same window and an
// entitlement depends on who was active in it; two scrapes do not give that, and
// neither does a tool that guesses. Choice: the daemon, which has the windows,
// works them out once and gives one document; `penstock top`, `penstock doctor`
// and whoever wants to script something read the same. The metrics stay the
// place for history.
//
// The document is versioned: fields are added without notice, a field that is
// taken away or changes its meaning raises Version. Units are in the names,
// counts begin with the daemon and only grow. It is bounded: past the bound the
// flows that used the device least are left off, and their number is given.
package status

import "time"

// Version of the document.
const Version = 1

// Document is the daemon at one moment.
type Document struct {
	Version      int          `json:"version"`
	Build        string       `json:"build"`
	PID          int          `json:"pid"`
	Started      time.Time    `json:"started"`
	Time         time.Time    `json:"time"`
	MonotonicNS  int64        `json:"monotonic_ns"` // CLOCK_MONOTONIC
	Mode         string       `json:"mode"`         // off, observe or enforce; what is in force
	KillSwitch   Switch       `json:"kill_switch"`
	Socket       string       `json:"socket"`
	Users        []uint32     `json:"users"` // ids that may connect
	Weights      Weights      `json:"weights"`
	Cluster      Cluster      `json:"cluster"`
	Heartbeat    Heartbeat    `json:"heartbeat"`
	Agents       []Agent      `json:"agents"`
	SocketCounts Socket       `json:"socket_counts"`
	Identity     Identity     `json:"identity"`
	ForeignWatch ForeignWatch `json:"foreign_watch"`
	Devices      []Device     `json:"devices"`
	Silent       []string     `json:"silent"` // devices whose loop did not answer in time
}

// Switch is the kill switch.
type Switch struct {
	File string `json:"file"`
	On   bool   `json:"on"`
}

// Weights is the weights file.
type Weights struct {
	File    string `json:"file"` // empty: none, every application has weight 1
	Rules   int    `json:"rules"`
	Default int    `json:"default"`
	Taken   int64  `json:"taken"`   // times it was read again and taken
	Refused int64  `json:"refused"` // and refused for a mistake in it
	Error   string `json:"error"`   // the mistake, while the last good file is in force
}

// Cluster is what comes of the brokers that the settings name.
type Cluster struct {
	Node     string    `json:"node"`     // this node's name there; empty: no brokers are named
	Broker   string    `json:"broker"`   // that answers; empty: none
	Answered time.Time `json:"answered"` // the last time
	InForce  bool      `json:"in_force"` // shares are of the cluster's totals, not local ones
	Policy   uint64    `json:"policy"`   // version
	Reported int       `json:"reported"` // applications
	LeftOut  int       `json:"left_out"` // applications past the bound
	DelayNS  int64     `json:"delay_ns"` // of the last answer
	Error    string    `json:"error"`    // why nobody answers
	Epoch    uint64    `json:"epoch"`    // the largest of a leadership whose answer was taken
	Refused  uint64    `json:"refused"`  // answers of smaller epochs
}

// Heartbeat is what agents hear: which devices live. The gates of one that does not
// are open within a second.
type Heartbeat struct {
	Alive   bool     `json:"alive"`
	Tick    uint64   `json:"tick"`
	Stalled []string `json:"stalled"` // devices whose loop does not turn
}

// Agent is one connection.
type Agent struct {
	PID         int32     `json:"pid"` // PID and UID by the kernel's word
	UID         uint32    `json:"uid"`
	Container   string    `json:"container"` // or its process, where the kernel names no container
	Role        string    `json:"role"`
	Flow        string    `json:"flow"`  // that all its streams belong to; empty: each has its own
	Agent       string    `json:"agent"` // name and version
	Directories []string  `json:"directories"`
	Since       time.Time `json:"since"`
}

// Socket counts what happened on the agents' socket.
type Socket struct {
	Refused       int64 `json:"refused"`
	Hurried       int64 `json:"hurried"` // of them, since they came too often
	Displaced     int64 `json:"displaced"`
	BadFrames     int64 `json:"bad_frames"`
	OpenErrors    int64 `json:"open_errors"`
	OverBound     int64 `json:"over_bound"` // of them
	SlowPeers     int64 `json:"slow_peers"`
	LogSuppressed int64 `json:"log_suppressed"`
}

// Identity is what became of claims to be an application.
type Identity struct {
	Mode   string   `json:"mode"`   // trust, verify or strict
	Claims []Claims `json:"claims"` // without those that are zero
	Remote Remote   `json:"remote"`
}

// Remote is what became of questions to other nodes about their processes, and of theirs.
type Remote struct {
	Asking     bool  `json:"asking"`     // other nodes are asked: there is a broker, with certificates
	Asked      int64 `json:"asked"`      // the sum of the four below
	Confirmed  int64 `json:"confirmed"`  // or corrected
	Refuted    int64 `json:"refuted"`    // by the other node's evidence
	Undecided  int64 `json:"undecided"`  // it answered, and knows nothing that decides
	Unanswered int64 `json:"unanswered"` // no node is there, or it did not answer in time

	Listen   string `json:"listen"`   // where other nodes are answered; empty: nowhere
	Answered int64  `json:"answered"` // their questions
	Refused  int64  `json:"refused"`  // those that were not theirs to ask, or too many
}

// Claims are how many ended so.
type Claims struct {
	Verdict  string `json:"verdict"`
	Evidence string `json:"evidence"`
	Count    int64  `json:"count"`
}

// Device is one block device, or the network.
type Device struct {
	Name        string   `json:"name"`
	Directories []string `json:"directories"` // data directories on it
	Rotational  bool     `json:"rotational"`
	Answered    bool     `json:"answered"` // false: what the loop alone knows is not filled in

	Kernel Kernel `json:"kernel"`

	Algorithm    string  `json:"algorithm"`
	QuantumBytes int64   `json:"quantum_bytes"`
	BacklogBound int64   `json:"backlog_bound_bytes"` // of one application
	DirtyBound   int64   `json:"dirty_bound_bytes"`   // of all
	LazyBound    int64   `json:"lazy_bound_bytes"`    // of all, beside it: of what tasks may yet delete
	StagedBound  int64   `json:"staged_bound_bytes"`  // of all: of what readers have not reached yet
	Depth        int     `json:"depth"`
	DepthMin     float64 `json:"depth_min"`
	DepthMax     float64 `json:"depth_max"`
	Periods      Periods `json:"depth_periods"`
	Outstanding  int     `json:"outstanding"`
	OthersPart   float64 `json:"others_part"`  // of the busy time, 0..1, that is left out of the latency
	LatencyNS    int64   `json:"latency_ns"`   // mean of the last control period; 0: none
	ReferenceNS  int64   `json:"reference_ns"` // of the same requests
	BacklogBytes int64   `json:"backlog_bytes"`
	StagedBytes  int64   `json:"staged_bytes"` // that readers have not reached yet
	Stuck        bool    `json:"stuck"`
	SlowFactor   float64 `json:"slow_factor"` // times slower than when healthy; 1: it is healthy
	Profiled     bool    `json:"profiled"`    // costs and references were measured on this device
	Errors       int64   `json:"errors"`

	Window  Window `json:"window"`
	Foreign Pair   `json:"foreign_bytes"`

	ForeignUsers ForeignUsers `json:"foreign_users"`

	Flows        []Flow `json:"flows"`
	FlowsLeftOff int    `json:"flows_left_off"`
}

// Kernel is the device in the kernel's own block layer. Numbers that it does not
// tell are -1.
type Kernel struct {
	Counted     bool   `json:"counted"` // false: there is no block device to count
	Scheduler   string `json:"scheduler"`
	Requests    int64  `json:"nr_requests"`
	ReadaheadKB int64  `json:"read_ahead_kb"`
	RequestKB   int64  `json:"max_sectors_kb"`
	InFlight    int64  `json:"in_flight"`
}

// Periods counts sfqd2's control periods by where they left the depth.
type Periods struct {
	Total int64 `json:"total"`
	AtMin int64 `json:"at_min"`
	AtMax int64 `json:"at_max"`
}

// Pair is something by direction.
type Pair struct {
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
}

// Window is what happened in the last seconds.
type Window struct {
	Seconds     float64 `json:"seconds"`     // its length; 0: too early to tell
	Utilisation float64 `json:"utilisation"` // 0..1, by the kernel's account
	Foreign     Pair    `json:"foreign_bytes"`
}

// ForeignWatch reports whether foreign I/O is shown by process and cgroup. Neither on
// nor an error: there is no device yet, or the settings want totals only.
type ForeignWatch struct {
	On    bool   `json:"on"`
	Error string `json:"error"` // the right, or the part of the kernel, that is missing
}

// ForeignUsers are those who use a device past the daemon, by the kernel's word.
type ForeignUsers struct {
	Seconds       float64       `json:"seconds"` // length of their window; 0: too early to tell
	Top           []ForeignUser `json:"top"`     // who moved most in the window first
	LeftOff       int           `json:"left_off"`
	UnlistedBytes int64         `json:"unlisted_bytes"` // of users past the bound on how many are kept apart
	Daemon        Pair          `json:"daemon_bytes"`   // the daemon's own
}

// ForeignUser is one process, or kernel threads of one name, in one cgroup.
type ForeignUser struct {
	Name     string `json:"name"` // the process's own word
	PID      uint32 `json:"pid"`  // 0: a kernel thread
	Cgroup   string `json:"cgroup"`
	Bytes    Pair   `json:"bytes"`
	DeviceNS int64  `json:"device_ns"` // its requests' time at the device, overlapping ones each
	Window   Pair   `json:"window_bytes"`
}

// Flow is one application's queue at the device.
type Flow struct {
	Name             string  `json:"name"`
	Weight           int     `json:"weight"`
	Queue            string  `json:"queue"` // that the weight counts in; empty: none
	Part             float64 `json:"part"`  // its weight here for its share of the cluster's service; 0: the weight
	Mode             string  `json:"mode"`
	LimitBytes       int64   `json:"limit_bytes_per_second"` // 0: none
	LimitWaits       int64   `json:"limit_waits"`            // times that its next request waited for it
	Streams          int     `json:"streams"`
	Queued           int     `json:"queued"` // streams with something that waits for its turn
	BacklogBytes     int64   `json:"backlog_bytes"`
	Bytes            Pair    `json:"bytes"` // moved by the device
	ResidentBytes    int64   `json:"resident_bytes"`
	UnscheduledBytes int64   `json:"unscheduled_bytes"`
	ServiceNS        int64   `json:"service_ns"`
	Requests         int64   `json:"requests"`
	Waits            int64   `json:"waits"`
	Standing         int     `json:"standing"`     // streams at their marks; observed: beyond those that enforcing would have set
	Forced           int64   `json:"forced"`       // packets let through after a stream's patience
	ForcedBytes      int64   `json:"forced_bytes"` // of them
	Refused          int64   `json:"refused"`      // reads refused before they began, as too many of the flow were waiting
	WouldWaitNS      int64   `json:"would_wait_ns"`

	Kinds  []Kind     `json:"kinds"` // those that it has had streams of
	Lazy   Lazy       `json:"lazy"`
	Window FlowWindow `json:"window"`
}

// Kind is a flow's account of its streams of one kind: persistent, intermediate
// or network.
type Kind struct {
	Kind      string `json:"kind"`
	Streamed  Pair   `json:"streamed_bytes"` // read and written by the streams, from the page cache as well
	Bytes     Pair   `json:"bytes"`          // moved by the device
	ServiceNS int64  `json:"service_ns"`
}

// Lazy are a flow's intermediate files that need not reach the device if they are
// deleted soon.
type Lazy struct {
	Files        int   `json:"files"`         // closed, and waiting to be deleted or drained
	DroppedFiles int64 `json:"dropped_files"` // deleted before they were drained
	DroppedBytes int64 `json:"dropped_bytes"` // that the device was spared
}

// FlowWindow is the flow in the device's window. Share and entitlement of the
// active flows add up to 1 each; a flow below its entitlement that has nothing
// queued did not want more.
type FlowWindow struct {
	Active      bool    `json:"active"`      // had service in the window, or waits for it
	Share       float64 `json:"share"`       // of the service given in the window, 0..1
	Entitlement float64 `json:"entitlement"` // weight among the active flows, 0..1
	Bytes       Pair    `json:"bytes"`
	WouldWaitNS int64   `json:"would_wait_ns"`
	Waits       int64   `json:"waits"`
}
