package config

import (
	"errors"
	"fmt"
	"time"

	"penstock/node/device"
	"penstock/settings"
)

// Network holds the settings of the network device, which limits what the machine may send. Values
// that are not set have device.Config's defaults for networks.
type Network struct {
	Rate     settings.Bytes    `yaml:"rate"` // per second; required
	Quantum  settings.Bytes    `yaml:"quantum"`
	Ahead    int               `yaml:"ahead"`
	Depth    int               `yaml:"depth"`
	MaxWait  settings.Duration `yaml:"max_wait"`
	MaxFlows int               `yaml:"max_flows"`
}

// NetworkConfig returns the settings of the network device.
func (n *Node) NetworkConfig() (device.Config, error) {
	c, err := n.networkConfig()
	if err != nil {
		return c, fmt.Errorf("network: %w", err)
	}
	return c, nil
}

func (n *Node) networkConfig() (device.Config, error) {
	c := device.Config{Network: true}
	if w := n.Network; w != nil {
		if w.Rate == 0 {
			return c, errors.New("rate: give the bytes per second that the machine can send, such as 117MiB for 1 Gbit/s")
		}
		c.Rate, c.Quantum = int64(w.Rate), int64(w.Quantum)
		c.Ahead, c.FixedDepth = w.Ahead, w.Depth
		c.MaxWait, c.MaxFlows = time.Duration(w.MaxWait), w.MaxFlows
	}
	return c, c.Validate()
}
