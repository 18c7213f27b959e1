package status

// Control is the state of kernel control: the processes, containers and connections without an agent
// that the policy holds.
type Control struct {
	Mode string `json:"mode"` // off, observe or enforce; also off if kernel control could not be opened
	// Enforced is set if this mode and the daemon's own mode are enforce; otherwise nothing is changed.
	Enforced   bool        `json:"enforced"`
	Mechanisms []Mechanism `json:"mechanisms"` // in the order in which they are tried
	Holds      []Hold      `json:"holds"`
	LeftOff    int         `json:"left_off"` // number of holds that are not in the list
	Changes    int         `json:"changes"`  // number of changes to the system that are in force and will be put back
	Restored   int         `json:"restored"` // number of changes of a crashed daemon that were put back at the start
	Gate       *Gate       `json:"gate"`     // null: the gate does not run
	Joining    *Joining    `json:"joining"`  // null: no connections are joined
	Error      string      `json:"error"`    // the last error that belongs to no hold
}

// Joining counts TCP connections between containers of this machine that go straight from socket to socket.
type Joining struct {
	Connections int    `json:"connections"` // open connections whose ends were found
	Joined      int    `json:"joined"`      // of these, at least one end sends straight to the other end
	Translated  int    `json:"translated"`  // of the open ones, the ends see different addresses (NAT)
	Released    int    `json:"released"`    // of the open ones, use TCP for the rest of their life
	Bytes       uint64 `json:"bytes"`       // sent straight to the other end, also by connections that are closed
	Closed      uint64 `json:"closed"`      // connections that are closed and were joined
	Sockets     int    `json:"sockets"`     // the kernel can join these; some may have no other end here
	Releases    int    `json:"releases"`    // times that all connections were released
	LastRelease string `json:"last_release"`
	Limited     string `json:"limited"` // why nothing is joined at present; empty: nothing prevents it
	Error       string `json:"error"`   // the last error
}

// Mechanism is a mechanism of the kernel.
type Mechanism struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Why       string `json:"why"` // why it is not available, and what can be done
}

// Hold is a flow on a device, or a connection, that the policy asks to hold.
type Hold struct {
	Flow      string `json:"flow"`
	Where     string `json:"where"`     // the device, or the ends of the connection
	Mechanism string `json:"mechanism"` // empty: none can hold it
	Held      bool   `json:"held"`      // whether the hold is in force
	Weight    int    `json:"weight"`
	Limit     int64  `json:"limit"` // bytes per second; 0: none
	Gap       string `json:"gap"`   // what the mechanism does not do
	Passed    []Rung `json:"passed"`
	Error     string `json:"error"`
}

// Rung is a mechanism that was passed over.
type Rung struct {
	Mechanism string `json:"mechanism"`
	Why       string `json:"why"`
}

// Gate has the counts of the gate.
type Gate struct {
	Held     uint64 `json:"held"`     // operations that waited for the daemon's answer
	Holding  uint64 `json:"holding"`  // operations that wait now
	Resident uint64 `json:"resident"` // reads of held processes that were in the page cache
	Passed   uint64 `json:"passed"`   // operations of other processes
	// Escaped are operations of held processes that cannot be held: mmap(2), truncate(2), fallocate(2),
	// and calls that the gate could not examine.
	Escaped uint64 `json:"escaped"`
	LetGo   uint64 `json:"let_go"` // operations that passed because of a bound, a late heartbeat, or a wait that was too long
	Opened  uint64 `json:"opened"` // number of times that the gate opened because the daemon's heartbeat was late
	// Ungoverned are operations that the gate held although no device loop governs them; they passed.
	Ungoverned int64 `json:"ungoverned"`
	Streams    int   `json:"streams"` // number of streams that are open now
}

// Held reports whether a flow is held on a device, or one of its connections is.
func (c *Control) Held(flow string) bool {
	for _, h := range c.Holds {
		if h.Flow == flow && h.Held {
			return true
		}
	}
	return false
}
