package wire

import "math"

// Bounds of the format; lengths in bytes.
const (
	Version        = 3
	HeaderLen      = 4
	MaxPayload     = 12288
	MaxAgentName   = 128
	MaxFlowName    = 128
	MaxAddress     = 64
	MaxUser        = 128
	MaxPath        = 4095
	MaxDirectories = 256
	MaxStride      = 1 << 30
	MaxDevice      = 63                // a device's number, 1..MaxDevice; NetworkDevice is the network's
	Unlimited      = math.MaxInt64     // a mark that no longer holds the stream back
	Refused        = math.MaxInt64 - 1 // a mark that has the agent refuse the operation, if it may still
)

// Message is one of Hello, Welcome, Open, Progress, Mark, Close and Heartbeat.
type Message interface{ typ() Type }

// Type is a frame's type byte; Mode, Direction, Kind and Role are its enumerations.
type (
	Type      uint8
	Mode      uint8
	Direction uint8
	Kind      uint8
	Role      uint8
)

// Values of the enumerations, as they stand on the wire.
const (
	TypeHello Type = iota + 1
	TypeWelcome
	TypeOpen
	TypeProgress
	TypeMark
	TypeClose
	TypeHeartbeat

	ModeOff     Mode = 0 // the agent does not wait
	ModeObserve Mode = 1 // it reports and does not wait
	ModeEnforce Mode = 2

	Read  Direction = 1
	Write Direction = 2

	// Persistent is HDFS's data, Intermediate what tasks keep on local disks for a
	// while, Network what is sent to another node.
	Persistent   Kind = 0
	Intermediate Kind = 1
	Network      Kind = 2

	RoleDataNode    Role = 1
	RoleTask        Role = 2 // a MapReduce task's JVM
	RoleNodeManager Role = 3
	RoleExecutor    Role = 4 // a Spark executor's JVM

	// NetworkDevice is the bit of a HEARTBEAT's Alive that stands for what is sent over
	// the network. As a directory's device it says that the directory is not governed.
	NetworkDevice = 0

	// Own as an OPEN's Client: nobody asked for it, the DataNode does it for itself.
	Own = "own"
)

// The messages. Positions are offsets in the block file, in bytes.
type (
	// Hello is the agent's first frame.
	Hello struct {
		PID         uint32
		Role        Role
		Agent       string   // name and version, at most MaxAgentName bytes
		Flow        string   // that all of this process's I/O belongs to, at most MaxFlowName bytes; "" for servers
		Threads     uint32   // that serve a DataNode's operations at once, at most; 0 for other roles
		Directories []string // absolute data directories, at most MaxDirectories
	}
	// Welcome is the daemon's answer.
	Welcome struct {
		Mode        Mode
		Stride      uint32 // bytes between PROGRESS frames, 1..MaxStride
		HeartbeatMs uint16 // at least 1
		// Devices are the numbers of the devices that the hello's directories lie on, in its
		// order: the same number is the same device, 0 is a directory that is not governed.
		// At most MaxDirectories, each at most MaxDevice.
		Devices []uint8
	}
	// Open begins a stream. Stream numbers are the agent's, and unique among
	// the open streams of a connection.
	Open struct {
		Stream    uint32
		Direction Direction
		Kind      Kind
		Refusable bool   // Refused may be the first mark: the operation then ends, and no data was moved
		Patience  uint32 // milliseconds that the stream's client bears one wait; 0: not known
		Flow      string // 1..MaxFlowName bytes
		Path      string // of the block, the local file, or the file that is sent; 1..MaxPath bytes
		Meta      string // path, "" if there is none
		// Client and Server are the ends of the TCP connection that the stream serves,
		// as ip:port, at most MaxAddress bytes; "" where nobody knows, and Client is Own
		// where there is none because nobody asked.
		Client, Server string
		User           string // that the block token was given to, at most MaxUser bytes; "" without tokens
		From, To       int64  // To is 0 for a write whose end is unknown
	}
	// Progress says how far the stream has read or written.
	Progress struct {
		Stream   uint32
		Position int64
	}
	// Mark says how far the stream may go.
	Mark struct {
		Stream   uint32
		Position int64 // Unlimited = as far as it likes, Refused = not at all
	}
	// Close ends a stream.
	Close struct {
		Stream   uint32
		Position int64
		Failed   bool
	}
	// Heartbeat says that the daemon lives, and which of its devices do.
	Heartbeat struct {
		Tick uint64
		Mode Mode
		// Alive has bit n set while the loop of device n ticks, by the WELCOME's numbers, and
		// bit NetworkDevice while the network's does.
		Alive uint64
	}
)

func (Hello) typ() Type     { return TypeHello }
func (Welcome) typ() Type   { return TypeWelcome }
func (Open) typ() Type      { return TypeOpen }
func (Progress) typ() Type  { return TypeProgress }
func (Mark) typ() Type      { return TypeMark }
func (Close) typ() Type     { return TypeClose }
func (Heartbeat) typ() Type { return TypeHeartbeat }
