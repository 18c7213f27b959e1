package hadoop

import (
	"testing"

	"penstock/lab/process"
)

// Killing a ResourceManager that does not exist returns an error and has no effect.
func TestKillResourceManagerThatIsNotThere(t *testing.T) {
	c := &Cluster{rms: []*process.Process{nil}} // killed already
	for _, i := range []int{-1, 0, 1} {
		if err := c.KillResourceManager(i); err == nil {
			t.Errorf("%d: no error", i)
		}
	}
}
