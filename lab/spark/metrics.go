package spark

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Counters are the counters of an application's tasks, in bytes.
type Counters struct {
	Read          int64 // from the cluster's file system
	Written       int64 // to it
	ShuffleRead   int64 // local and remote, as stored (compressed)
	ShuffleRemote int64 // of it, from other executors
	ShuffleWrite  int64
	Spilled       int64 // to disk, as stored
	Tasks         int
	Readers       int // tasks that read from the cluster's file system
	LocalReaders  int // of them, those on a machine of their data
}

// Counters reads an application's event log, which is complete only after the application's end.
func (s *Spark) Counters(app *App) (Counters, error) {
	var c Counters
	files, err := filepath.Glob(filepath.Join(s.eventDir(), "*"+app.ID+"*"))
	if err != nil {
		return c, err
	}
	if len(files) != 1 {
		return c, fmt.Errorf("event log of %s: found %d files in %s, want one", app.ID, len(files), s.eventDir())
	}
	f, err := os.Open(files[0])
	if err != nil {
		return c, err
	}
	defer f.Close()
	return c, c.add(f)
}

func (c *Counters) add(events io.Reader) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e struct {
			Event   string
			Info    struct{ Locality string } `json:"Task Info"`
			Metrics struct {
				Spilled int64 `json:"Disk Bytes Spilled"`
				Input   struct {
					Bytes int64 `json:"Bytes Read"`
				} `json:"Input Metrics"`
				Output struct {
					Bytes int64 `json:"Bytes Written"`
				} `json:"Output Metrics"`
				ShuffleRead struct {
					Remote int64 `json:"Remote Bytes Read"`
					Local  int64 `json:"Local Bytes Read"`
				} `json:"Shuffle Read Metrics"`
				ShuffleWrite struct {
					Bytes int64 `json:"Shuffle Bytes Written"`
				} `json:"Shuffle Write Metrics"`
			} `json:"Task Metrics"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("event log: %w", err)
		}
		if e.Event != "SparkListenerTaskEnd" {
			continue
		}
		m := e.Metrics
		c.Tasks++
		if c.Read += m.Input.Bytes; m.Input.Bytes > 0 {
			c.Readers++
			if e.Info.Locality == "NODE_LOCAL" {
				c.LocalReaders++
			}
		}
		c.Written += m.Output.Bytes
		c.ShuffleRead += m.ShuffleRead.Remote + m.ShuffleRead.Local
		c.ShuffleRemote += m.ShuffleRead.Remote
		c.ShuffleWrite += m.ShuffleWrite.Bytes
		c.Spilled += m.Spilled
	}
	return lines.Err()
}
