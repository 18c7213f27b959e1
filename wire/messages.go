package wire

import "math"

// Limits of the format. Lengths are in bytes.
const (
	Version        = 4
	Former         = Version - 1 // the daemon also serves agents of this version
	HeaderLen      = 4
	MaxPayload     = 12288
	MaxAgentName   = 128
	MaxFlowName    = 128
	MaxAddress     = 64
	MaxUser        = 128
	MaxPath        = 4095
	MaxDirectories = 256
	MaxStride      = 1 << 30
	MaxDevice      = 63                // device numbers are 1..MaxDevice; the number of the network is NetworkDevice
	Unlimited      = math.MaxInt64     // the mark of a stream without a bound
	Refused        = math.MaxInt64 - 1 // a mark that makes the agent refuse the operation, if it still can
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

// Values of the enumerations, as in the frames.
const (
	TypeHello Type = iota + 1
	TypeWelcome
	TypeOpen
	TypeProgress
	TypeMark
	TypeClose
	TypeHeartbeat

	ModeOff     Mode = 0 // the agent does not wait
	ModeObserve Mode = 1 // the agent reports and does not wait
	ModeEnforce Mode = 2

	Read  Direction = 1
	Write Direction = 2

	// Persistent is HDFS data. Intermediate is temporary data of tasks on local disks. Network is
	// data that is sent to another node.
	Persistent   Kind = 0
	Intermediate Kind = 1
	Network      Kind = 2

	RoleDataNode    Role = 1
	RoleTask        Role = 2 // a MapReduce task's JVM
	RoleNodeManager Role = 3
	RoleExecutor    Role = 4 // a Spark executor's JVM
	RoleWorker      Role = 5 // a standalone Spark's Worker with the shuffle service, or that service by itself

	// NetworkDevice is the number of the network's bit in a HEARTBEAT's Alive. As the device number
	// of a directory, it means that the directory is not governed.
	NetworkDevice = 0

	// Own, as an OPEN's Client, means that no client requested the operation. The DataNode performs
	// it for itself.
	Own = "own"
)

// The messages. Positions are offsets in the block file, in bytes.
type (
	// Hello is the agent's first frame.
	Hello struct {
		PID         uint32
		Role        Role
		Agent       string   // name and version, at most MaxAgentName bytes
		Flow        string   // the flow of all I/O of this process, at most MaxFlowName bytes; "" for servers
		Threads     uint32   // maximum number of threads that serve a DataNode's operations; 0 for other roles
		Directories []string // absolute data directories, at most MaxDirectories
	}
	// Welcome is the daemon's answer.
	Welcome struct {
		Mode        Mode
		Stride      uint32 // bytes between PROGRESS frames, 1..MaxStride
		HeartbeatMs uint16 // at least 1
		// Devices are the device numbers of the HELLO's directories, in the same order. Equal
		// numbers mean the same device; 0 means that the directory is not governed. At most
		// MaxDirectories, each at most MaxDevice.
		Devices []uint8
	}
	// Open begins a stream. The agent chooses the stream number, which is unique among the open
	// streams of a connection.
	Open struct {
		Stream    uint32
		Direction Direction
		Kind      Kind
		Refusable bool   // whether the first mark may be Refused, which ends the operation before data is moved
		Passing   bool   // only for a Read: the reader does not wait for marks, because its device is free
		Patience  uint32 // longest acceptable wait of the stream's client, in milliseconds; 0 if unknown
		Flow      string // 1..MaxFlowName bytes
		Path      string // path of the block, of the local file, or of the file that is sent; 1..MaxPath bytes
		Meta      string // path of the meta file, "" if there is none
		// Client and Server are the ends of the TCP connection that the stream serves, as ip:port,
		// at most MaxAddress bytes; "" if unknown. Client is Own if no client requested the
		// operation.
		Client, Server string
		User           string // user of the block token, at most MaxUser bytes; "" without tokens
		From, To       int64  // To is 0 for a write whose end is unknown
	}
	// Progress reports how far the stream has read or written.
	Progress struct {
		Stream   uint32
		Position int64
	}
	// Mark limits how far the stream may go.
	Mark struct {
		Stream   uint32
		Position int64 // or Unlimited, or Refused
	}
	// Close ends a stream.
	Close struct {
		Stream   uint32
		Position int64
		Failed   bool
	}
	// Heartbeat reports that the daemon is alive, and which of its device loops run.
	Heartbeat struct {
		Tick uint64
		Mode Mode
		// Alive has bit n set while the loop of device n runs (numbers as in the WELCOME), and bit
		// NetworkDevice while the network's loop runs.
		Alive uint64
		// Free has bit n set while device n is free: small reads need not wait for their marks. Bit
		// NetworkDevice is 0.
		Free uint64
	}
)

func (Hello) typ() Type     { return TypeHello }
func (Welcome) typ() Type   { return TypeWelcome }
func (Open) typ() Type      { return TypeOpen }
func (Progress) typ() Type  { return TypeProgress }
func (Mark) typ() Type      { return TypeMark }
func (Close) typ() Type     { return TypeClose }
func (Heartbeat) typ() Type { return TypeHeartbeat }
