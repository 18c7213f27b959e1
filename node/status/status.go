// Package status is the document that the node daemon returns at GET /status, and a client for
// it.
//
// Problem: an operator's question seldom has one number as the answer. To find out why an
// application is slow, the operator needs its share and its entitlement, the other active flows,
// the state of the device, and the foreign I/O. Prometheus' metrics have the counters. But a
// share is a ratio over a single window, and an entitlement depends on the flows that were active
// in it; neither two scrapes nor a tool that guesses can provide them. Choice: the daemon, which
// has the windows, computes the figures once and returns one document. `penstock top`, `penstock
// doctor` and scripts read the same one. The metrics remain the place for history.
//
// The document has a version: fields are added without notice; a removed field or a changed
// meaning increases Version. Units are in the names. Counts begin with the daemon and never
// decrease. The document's size is bounded: beyond the bound, the flows that used the device
// least are left out, and their number is given.
package status

import (
	"time"

	"penstock/core/reserve"
)

// Version of the document.
const Version = 1

// Document describes the daemon at one moment.
type Document struct {
	Version      int          `json:"version"`
	Build        string       `json:"build"`
	PID          int          `json:"pid"`
	Started      time.Time    `json:"started"`
	Time         time.Time    `json:"time"`
	MonotonicNS  int64        `json:"monotonic_ns"` // CLOCK_MONOTONIC
	Mode         string       `json:"mode"`         // in force: off, observe or enforce
	KillSwitch   Switch       `json:"kill_switch"`
	Socket       string       `json:"socket"`
	Users        []uint32     `json:"users"` // ids that may connect
	Weights      Weights      `json:"weights"`
	Cluster      Cluster      `json:"cluster"`
	Heartbeat    Heartbeat    `json:"heartbeat"`
	Agents       []Agent      `json:"agents"`
	SocketCounts Socket       `json:"socket_counts"`
	Loopback     Loopback     `json:"loopback"`
	Identity     Identity     `json:"identity"`
	ForeignWatch ForeignWatch `json:"foreign_watch"`
	Connections  Connections  `json:"connections"`
	Processes    Processes    `json:"processes"`
	Applications Applications `json:"applications"`
	// Orchestrators are those that the settings name.
	Orchestrators []Orchestrator `json:"orchestrators"`
	Machine       Machine        `json:"machine"`
	Control       Control        `json:"control"`
	// MissingCalls are the system calls that the daemon would use and may not. It is nil only in documents of
	// daemons that do not report them.
	MissingCalls []MissingCall `json:"missing_calls"`
	Devices      []Device      `json:"devices"`
	Silent       []string      `json:"silent"` // devices whose loop did not answer in time
}

// MissingCall is a system call that the kernel lacks or a system call filter refuses.
type MissingCall struct {
	Name string `json:"name"`
	Why  string `json:"why"`
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
	Taken   int64  `json:"taken"`   // times it was reloaded
	Refused int64  `json:"refused"` // times it was refused because of a mistake
	Error   string `json:"error"`   // the mistake, while the last valid file is in force
}

// Cluster is the state of the connection to the brokers in the settings.
type Cluster struct {
	Node     string    `json:"node"`     // this node's name there; empty: the settings have no brokers
	Broker   string    `json:"broker"`   // the broker that answers; empty: none
	Answered time.Time `json:"answered"` // time of the last answer
	InForce  bool      `json:"in_force"` // shares follow the cluster's totals, not only local service
	Policy   uint64    `json:"policy"`   // version
	Reported int       `json:"reported"` // number of applications
	LeftOut  int       `json:"left_out"` // applications beyond the bound
	DelayNS  int64     `json:"delay_ns"` // of the last answer
	Error    string    `json:"error"`    // why no broker answers
	Epoch    uint64    `json:"epoch"`    // the largest epoch of an accepted answer
	Refused  uint64    `json:"refused"`  // answers of smaller epochs
	Canary   bool      `json:"canary"`   // the policy is a canary's, which only a part of the nodes has
	// ModeBound is the strongest mode that the policy allows this node; the weaker of it and the node's own mode applies.
	ModeBound    string `json:"mode_bound"`
	LimitsLapsed bool   `json:"limits_lapsed"` // no broker has answered for limit_lease: the policy's limits are no longer in force
}

// Heartbeat is the state that agents receive: which devices are alive. The gates of a device that
// is not alive open within a second.
type Heartbeat struct {
	Alive   bool     `json:"alive"`
	Tick    uint64   `json:"tick"`
	Stalled []string `json:"stalled"` // devices whose loop does not respond
}

// Agent is one connection.
type Agent struct {
	PID         int32     `json:"pid"` // PID and UID come from the kernel
	UID         uint32    `json:"uid"`
	Container   string    `json:"container"` // or its process, if the kernel names no container
	Role        string    `json:"role"`
	Flow        string    `json:"flow"`  // flow of all its streams; empty: each stream has its own
	Agent       string    `json:"agent"` // name and version
	Directories []string  `json:"directories"`
	Since       time.Time `json:"since"`
	Loopback    bool      `json:"loopback"` // connected by the loopback port
	Frames      int       `json:"frames"`   // version of the frames
	// Ungoverned are the directories that are not governed.
	Ungoverned []Ungoverned `json:"ungoverned"`
}

// Ungoverned is a directory that is not governed, and why.
type Ungoverned struct {
	Directory string `json:"directory"`
	Cause     Cause  `json:"cause"`
	Reason    string `json:"reason"`
}

// Cause is the kind of the reason.
type Cause string

// The causes. While the cause is Hangs or Absent, the daemon looks again and again.
const (
	Hangs     Cause = "hangs"      // its disk does not answer
	Absent    Cause = "absent"     // it does not exist, or its file system is not mounted
	NotListed Cause = "not listed" // the settings list other directories
	Other     Cause = "other"
)

// Loopback is the port for agents on JVMs without Unix sockets.
type Loopback struct {
	Setting string `json:"setting"` // "off": there is no such port
	Listen  string `json:"listen"`  // the address in use; empty: none, or another process uses it
	File    string `json:"file"`    // the file that names the port to agents
	Agents  int    `json:"agents"`  // connected now
	// Of the refused connections, those whose socket was not found (closed, or in another network
	// namespace), and those whose process was not found.
	NoSocket  int64 `json:"no_socket"`
	NoProcess int64 `json:"no_process"`
}

// Socket counts what happened on the agents' socket.
type Socket struct {
	Refused       int64 `json:"refused"`
	Hurried       int64 `json:"hurried"` // of these, because they came too often
	Displaced     int64 `json:"displaced"`
	BadFrames     int64 `json:"bad_frames"`
	OpenErrors    int64 `json:"open_errors"`
	OverBound     int64 `json:"over_bound"` // of these
	SlowPeers     int64 `json:"slow_peers"`
	LogSuppressed int64 `json:"log_suppressed"`
}

// Identity counts the results of claims.
type Identity struct {
	Mode   string   `json:"mode"`   // trust, verify or strict
	Claims []Claims `json:"claims"` // without zeros
	Remote Remote   `json:"remote"`
	// Services are the rules of named services in force. In documents of daemons that have none, it is nil.
	Services []Service `json:"services"`
}

// Service is a rule of the weights file that names a service. Empty conditions do not count.
type Service struct {
	Flow    string `json:"flow"`
	User    string `json:"user"` // "*": any
	Program string `json:"program"`
	Client  string `json:"client"`
}

// Remote counts questions to other nodes about their processes, and the questions of other nodes.
type Remote struct {
	Asking     bool  `json:"asking"`     // this node can ask others: it has a broker and certificates
	Asked      int64 `json:"asked"`      // the sum of the four below
	Confirmed  int64 `json:"confirmed"`  // or corrected
	Refuted    int64 `json:"refuted"`    // by the other node's evidence
	Undecided  int64 `json:"undecided"`  // it answered, but its evidence decides nothing
	Unanswered int64 `json:"unanswered"` // no node there, or no answer in time

	Listen   string `json:"listen"`   // address for other nodes' questions; empty: none
	Answered int64  `json:"answered"` // questions of other nodes
	Refused  int64  `json:"refused"`  // questions that the caller had no right to ask, or too many
}

// Claims is the number of claims with one result.
type Claims struct {
	Verdict  string `json:"verdict"`
	Evidence string `json:"evidence"`
	Count    int64  `json:"count"`
}

// Device is one block device, or the network.
type Device struct {
	Name        string   `json:"name"`
	Joined      []string `json:"joined"`      // other devices that its scheduler governs, because they share disks with it
	Directories []string `json:"directories"` // data directories on it
	Rotational  bool     `json:"rotational"`
	Answered    bool     `json:"answered"` // false: values that only the loop knows are missing

	Kernel Kernel `json:"kernel"`

	Algorithm    string  `json:"algorithm"`
	QuantumBytes int64   `json:"quantum_bytes"`
	BacklogBound int64   `json:"backlog_bound_bytes"` // of one application
	DirtyBound   int64   `json:"dirty_bound_bytes"`   // of all
	LazyBound    int64   `json:"lazy_bound_bytes"`    // of all, in addition: tasks' files that may be deleted
	StagedBound  int64   `json:"staged_bound_bytes"`  // of all: bytes that readers have not reached yet
	Depth        int     `json:"depth"`
	DepthMin     float64 `json:"depth_min"`
	DepthMax     float64 `json:"depth_max"`
	Periods      Periods `json:"depth_periods"`
	Outstanding  int     `json:"outstanding"`
	OthersPart   float64 `json:"others_part"`  // part of the busy time, 0..1, that is excluded from the latency
	LatencyNS    int64   `json:"latency_ns"`   // mean of the last control period; 0: none
	ReferenceNS  int64   `json:"reference_ns"` // of the same requests
	BacklogBytes int64   `json:"backlog_bytes"`
	StagedBytes  int64   `json:"staged_bytes"` // bytes that readers have not reached yet
	Stuck        bool    `json:"stuck"`
	// Free reports whether small reads do not wait for their marks, and PassingReads how many have not.
	Free         bool  `json:"free"`
	PassingReads int64 `json:"passing_reads"`
	// Promised is the part of the device's time that all guaranteed rates take at its present speed, and StrictPart
	// the part that strict ones keep from other flows. StrictIdleNS is the time for which the device had no request
	// because of strict rates, while a flow was backlogged.
	Promised     float64 `json:"promised"`
	StrictPart   float64 `json:"strict_part"`
	StrictIdleNS int64   `json:"strict_idle_ns"`
	SlowFactor   float64 `json:"slow_factor"` // times slower than when healthy; 1: it is healthy
	Profiled     bool    `json:"profiled"`    // costs and references were measured on this device
	Errors       int64   `json:"errors"`

	Window  Window `json:"window"`
	Foreign Pair   `json:"foreign_bytes"`

	ForeignUsers ForeignUsers `json:"foreign_users"`
	Latencies    Latencies    `json:"latencies"`

	Flows        []Flow `json:"flows"`
	FlowsLeftOff int    `json:"flows_left_off"`
}

// Kernel is the device's state in the kernel's block layer. Numbers that the kernel does not
// report are -1.
type Kernel struct {
	Counted     bool   `json:"counted"` // false: there is no block device to count
	Scheduler   string `json:"scheduler"`
	Requests    int64  `json:"nr_requests"`
	ReadaheadKB int64  `json:"read_ahead_kb"`
	RequestKB   int64  `json:"max_sectors_kb"`
	InFlight    int64  `json:"in_flight"`
}

// Periods counts sfqd2's control periods by the resulting depth.
type Periods struct {
	Total int64 `json:"total"`
	AtMin int64 `json:"at_min"`
	AtMax int64 `json:"at_max"`
}

// Pair is a quantity by direction.
type Pair struct {
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
}

// Window is what happened in the last seconds.
type Window struct {
	Seconds     float64 `json:"seconds"`     // its length; 0: not enough readings yet
	Utilisation float64 `json:"utilisation"` // 0..1, according to the kernel
	Foreign     Pair    `json:"foreign_bytes"`
}

// ForeignWatch reports whether foreign I/O is shown by process and cgroup. If On is false and
// Error is empty, there is no device yet, or the settings want totals only.
type ForeignWatch struct {
	On    bool   `json:"on"`
	Error string `json:"error"` // the missing right or part of the kernel
}

// Connections are the established connections to the machine's DataNodes (package connections).
type Connections struct {
	Error       string       `json:"error"`   // of the last look at the kernel's connections
	Seconds     float64      `json:"seconds"` // between the last two looks, to which rates refer; 0: there was only one
	Ports       []uint16     `json:"ports"`   // of DataNodes, from their agents
	Established int          `json:"established"`
	AtBound     bool         `json:"at_bound"` // there are more than can be watched
	Top         []Connection `json:"top"`      // sorted by rate, the fastest first
	LeftOff     int          `json:"left_off"`
}

// Connection is a connection between a DataNode and a client.
type Connection struct {
	Server        string  `json:"server"` // ip:port of the DataNode
	Client        string  `json:"client"`
	Flow          string  `json:"flow"`      // of its present or last stream; empty: no stream was seen
	Direction     string  `json:"direction"` // of that stream: read or write; empty: no stream was seen
	Block         string  `json:"block"`     // name of the stream's file
	Streaming     bool    `json:"streaming"` // the stream has not ended
	SentBytes     int64   `json:"sent_bytes"`
	ReceivedBytes int64   `json:"received_bytes"`
	SentRate      float64 `json:"sent_bytes_per_second"`
	ReceivedRate  float64 `json:"received_bytes_per_second"`
	RTTNS         int64   `json:"rtt_ns"`                  // smoothed
	PacingRate    int64   `json:"pacing_bytes_per_second"` // 0: the kernel does not pace
}

// Processes are the processes of applications, containers and systemd units (package processes).
type Processes struct {
	Error string `json:"error"` // of the last look, such as a missing right
	// BlockDelayCounted reports whether the kernel counts waits for block I/O; if not, Note says
	// what turns that on.
	BlockDelayCounted bool           `json:"block_delay_counted"`
	Seconds           float64        `json:"seconds"` // length of the windows; 0: there was only one look
	Note              string         `json:"note"`
	Top               []ProcessGroup `json:"top"` // sorted by bytes, the largest first
	LeftOff           int            `json:"left_off"`
	AtBound           bool           `json:"at_bound"` // there are more than can be watched
}

// ProcessGroup adds up the processes of one container or unit, or of one application outside of
// containers. Figures count from the daemon's first look on.
type ProcessGroup struct {
	Flow         string `json:"flow"` // the application; empty: not an application of the cluster
	Owner        Owner  `json:"owner"`
	Processes    int    `json:"processes"` // that run now
	Bytes        Pair   `json:"bytes"`     // of storage, by the kernel's account of each process
	BlockDelayNS int64  `json:"block_delay_ns"`
	RunDelayNS   int64  `json:"run_delay_ns"`
	CPUNS        int64  `json:"cpu_ns"`
	MemoryBytes  int64  `json:"memory_bytes"` // resident now

	Window ProcessWindow `json:"window"`
}

// ProcessWindow has the increases between the last two looks.
type ProcessWindow struct {
	Bytes        Pair  `json:"bytes"`
	BlockDelayNS int64 `json:"block_delay_ns"`
	RunDelayNS   int64 `json:"run_delay_ns"`
	CPUNS        int64 `json:"cpu_ns"`
}

// ForeignUsers are the users of a device with foreign I/O, according to the kernel.
type ForeignUsers struct {
	Seconds       float64       `json:"seconds"` // length of the window; 0: not enough readings yet
	Top           []ForeignUser `json:"top"`     // sorted by bytes in the window, the largest first
	LeftOff       int           `json:"left_off"`
	UnlistedBytes int64         `json:"unlisted_bytes"` // of users beyond the bound on distinguished users
	Daemon        Pair          `json:"daemon_bytes"`   // the daemon's own
}

// ForeignUser is one process, or kernel threads of one name, in one cgroup.
type ForeignUser struct {
	Name     string `json:"name"` // chosen by the process
	PID      uint32 `json:"pid"`  // 0: a kernel thread
	Cgroup   string `json:"cgroup"`
	Owner    Owner  `json:"owner"`
	Bytes    Pair   `json:"bytes"`
	DeviceNS int64  `json:"device_ns"` // time of its requests at the device; overlapping requests count fully
	Window   Pair   `json:"window_bytes"`
}

// Latencies are the latencies of a device's requests by owner, according to the kernel. There are none
// if ForeignWatch is not on.
type Latencies struct {
	Seconds float64        `json:"seconds"` // length of the windows; 0: not enough readings yet
	Top     []OwnerLatency `json:"top"`     // sorted by requests in the window, the largest number first
	LeftOff int            `json:"left_off"`
}

// OwnerLatency has the latencies of one owner's requests, from issue to completion.
type OwnerLatency struct {
	Owner  Owner         `json:"owner"` // without a kind: Short says whose requests these are
	Read   Latency       `json:"read"`
	Write  Latency       `json:"write"`
	Window LatencyWindow `json:"window"`
}

// LatencyWindow has the latencies of the requests in the window.
type LatencyWindow struct {
	Read  Latency `json:"read"`
	Write Latency `json:"write"`
}

// Latency summarises requests. Each quantile is wrong by a quarter at most, and 0 without requests.
type Latency struct {
	Requests int64 `json:"requests"`
	P50NS    int64 `json:"p50_ns"`
	P95NS    int64 `json:"p95_ns"`
	P99NS    int64 `json:"p99_ns"`
}

// Owner is the container or systemd unit that a cgroup path names (package owner).
type Owner struct {
	Kind        string `json:"kind"`        // yarn, mesos, kubernetes, docker, podman or unit; empty: none recognised
	ID          string `json:"id"`          // of the container, or the unit's name
	Application string `json:"application"` // of YARN, or as the kubelet or the Mesos agent reports it
	Pod         string `json:"pod"`
	Delegated   bool   `json:"delegated"` // below a user's session or a container: the names are no evidence
	Short       string `json:"short"`     // for people
}

// Flow is one application's queue at the device.
type Flow struct {
	Name             string      `json:"name"`
	Weight           int         `json:"weight"`
	Queue            string      `json:"queue"` // queue in which the weight counts; empty: none
	Part             float64     `json:"part"`  // weight that balances its share of the cluster; 0: its weight
	Mode             string      `json:"mode"`
	LimitBytes       int64       `json:"limit_bytes_per_second"` // 0: none
	LimitWaits       int64       `json:"limit_waits"`            // times that its next request waited for the limit
	Reserve          Reserve     `json:"reserve"`
	Latency          LatencyGoal `json:"latency"`
	Streams          int         `json:"streams"`
	Queued           int         `json:"queued"` // streams with a request that waits for its turn
	BacklogBytes     int64       `json:"backlog_bytes"`
	Bytes            Pair        `json:"bytes"` // moved by the device
	ResidentBytes    int64       `json:"resident_bytes"`
	UnscheduledBytes int64       `json:"unscheduled_bytes"`
	ServiceNS        int64       `json:"service_ns"`
	Requests         int64       `json:"requests"`
	Waits            int64       `json:"waits"`
	Standing         int         `json:"standing"`     // at their marks; observe mode: beyond the marks that enforcing would set
	Forced           int64       `json:"forced"`       // packets that passed after a stream's patience
	ForcedBytes      int64       `json:"forced_bytes"` // bytes of these packets
	Refused          int64       `json:"refused"`      // reads refused before they began: too many of the flow were waiting
	WouldWaitNS      int64       `json:"would_wait_ns"`

	// For estimates of slowdowns: how long its streams were open and waited, summed over streams; and how long the device
	// served others although it had a request.
	StreamNS    int64 `json:"stream_ns"`
	WaitedNS    int64 `json:"waited_ns"`
	ContendedNS int64 `json:"contended_ns"`

	Kinds  []Kind     `json:"kinds"` // kinds of its streams so far
	Lazy   Lazy       `json:"lazy"`
	Window FlowWindow `json:"window"`
}

// LatencyGoal is a flow's latency goal, and how it was kept.
type LatencyGoal struct {
	GoalNS     int64   `json:"goal_ns"`     // 0: none
	P99NS      int64   `json:"p99_ns"`      // of the small reads of the last minute that needed the device
	Reads      int     `json:"reads"`       // of the last minute
	Attained   float64 `json:"attained"`    // part of them that took at most the goal
	Active     bool    `json:"active"`      // whether the goal is in force now
	SliceBytes int64   `json:"slice_bytes"` // most bytes of a request now; 0: no goal is in force
	DepthBound int     `json:"depth_bound"` // bound of the requests in flight; 0: no goal is in force
	LeastNS    int64   `json:"least_ns"`    // the lowest goal that the device can keep, by its profile
}

// Reserve is a flow's guaranteed rate, and how often it was kept. Times are those in which the flow was
// backlogged.
type Reserve struct {
	reserve.Rate
	Promised float64 `json:"promised"` // part of the device's time that the rate takes at the device's present speed
	Bytes    int64   `json:"bytes"`    // of requests that started before their turn by weight
	State    string  `json:"state"`    // unused, admitted, queued or reduced
	Granted  float64 `json:"granted"`  // part of the rate that is enforced
	Fits     float64 `json:"fits"`     // part of the rate for which the device has room
	KeptNS   int64   `json:"kept_ns"`
	BrokenNS int64   `json:"broken_ns"` // reserved service was overdue by more than a bound, or the rate was reduced
}

// Kind is a flow's account of its streams of one kind: persistent, intermediate
// or network.
type Kind struct {
	Kind        string `json:"kind"`
	Streamed    Pair   `json:"streamed_bytes"` // read and written by the streams, including from the page cache
	RemoteBytes int64  `json:"remote_bytes"`   // of these, bytes that went to another machine or came from one
	Bytes       Pair   `json:"bytes"`          // moved by the device
	ServiceNS   int64  `json:"service_ns"`
}

// Lazy are a flow's intermediate files that need not reach the device if they are
// deleted soon.
type Lazy struct {
	Files        int   `json:"files"`         // closed files that wait to be deleted or drained
	DroppedFiles int64 `json:"dropped_files"` // deleted before they were drained
	DroppedBytes int64 `json:"dropped_bytes"` // bytes that were never written to the device
}

// FlowWindow is the flow in the device's window. The shares of the active flows add up to 1, and
// so do their entitlements. A flow below its entitlement with nothing queued did not want more.
type FlowWindow struct {
	Active      bool    `json:"active"`      // had service in the window, or waits for it
	Share       float64 `json:"share"`       // of the service given in the window, 0..1
	Entitlement float64 `json:"entitlement"` // weight among the active flows, 0..1
	Bytes       Pair    `json:"bytes"`
	WouldWaitNS int64   `json:"would_wait_ns"`
	Waits       int64   `json:"waits"`
}

// Applications are the applications, containers and units of the machine, by their processes. Each
// process belongs to one of them at most.
type Applications struct {
	Looked  time.Time     `json:"looked"` // when the figures were read; zero: not yet
	Top     []Application `json:"top"`    // running ones first, then by CPU time, the largest first
	LeftOff int           `json:"left_off"`
}

// Application adds up all processes of one application, container or unit. Figures count from the
// daemon's first look on.
type Application struct {
	Name        string `json:"name"`       // the flow; outside of the cluster's applications the id of the container, the pod or the unit
	Containers  int    `json:"containers"` // entries of Processes, also those that have ended
	Processes   int    `json:"processes"`  // that run now
	CPUNS       int64  `json:"cpu_ns"`
	MemoryBytes int64  `json:"memory_bytes"` // resident now; a page that several processes share counts for each
	Bytes       Pair   `json:"bytes"`        // of storage, by the kernel's account of each process
}

// Machine is the size of the machine. 0: not known.
type Machine struct {
	Cores        int   `json:"cores"`
	MemoryBytes  int64 `json:"memory_bytes"`
	NetworkBytes int64 `json:"network_bytes_per_second"` // sum over the machine's own interfaces, in one direction
}
