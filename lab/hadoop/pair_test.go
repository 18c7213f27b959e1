package hadoop

import (
	"testing"

	"penstock/lab/process"
)

// Killing what does not exist gives an error, and nothing happens.
func TestKillResourceManagerThatIsNotThere(t *testing.T) {
	c := &Cluster{rms: []*process.Process{nil}} // one that was killed
	for _, i := range []int{-1, 0, 1} {
		if err := c.KillResourceManager(i); err == nil {
			t.Errorf("%d: no error", i)
		}
	}
}
