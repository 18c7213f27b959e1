package status

import "time"

// Orchestrator is the kubelet or the Mesos agent of the machine, as it was last asked.
type Orchestrator struct {
	Kind       string         `json:"kind"` // kubernetes or mesos
	URL        string         `json:"url"`
	Answered   time.Time      `json:"answered"`   // the last answer; zero: none yet
	Error      string         `json:"error"`      // of the last request; the last answer counts meanwhile
	Failures   int            `json:"failures"`   // requests that have failed since the last answer
	SlowFiles  uint64         `json:"slow_files"` // requests that were not made because a file with a token, a credential or certificates was not read in time
	Containers int            `json:"containers"` // pods, or containers of executors
	Skipped    int            `json:"skipped"`    // entries with invalid names
	LeftOut    int            `json:"left_out"`   // containers beyond the bound
	Absent     int            `json:"absent"`     // containers that the last answer lacks, and that still count
	Offered    int64          `json:"offered_mb_per_second"`
	Top        []Orchestrated `json:"top"` // applications, those that request most bandwidth first
	LeftOff    int            `json:"left_off"`
	// DevicePlugin is the offer of bandwidth to the kubelet; null: the settings have none.
	DevicePlugin *DevicePlugin `json:"device_plugin"`
}

// DevicePlugin is an offer of disk bandwidth to the kubelet.
type DevicePlugin struct {
	Resource   string    `json:"resource"`
	Offered    int       `json:"offered_mb_per_second"`
	Registered time.Time `json:"registered"` // with the kubelet that runs now; zero: not registered
	Watched    int       `json:"watched"`    // streams over which the kubelet follows the offer
	Error      string    `json:"error"`      // why it is not registered
}

// Orchestrated adds up the containers of an application on this machine.
type Orchestrated struct {
	Name       string  `json:"name"`     // of the flow
	Title      string  `json:"title"`    // for people
	Workload   string  `json:"workload"` // Spark, Deployment, Framework, ...
	OwnFlow    bool    `json:"own_flow"` // false: its I/O belongs to the flow clients
	Containers int     `json:"containers"`
	Requested  int64   `json:"requested_mb_per_second"`
	CPUs       float64 `json:"cpus"`      // of Mesos
	MemoryMB   int64   `json:"memory_mb"` // of Mesos
}
