package hadoop

import (
	"maps"
	"testing"
)

func TestQueueSettings(t *testing.T) {
	cfg := Config{Queues: []string{"root.etl.night", "root.etl.day", "root.adhoc"}, DiskBandwidth: 100}
	if err := cfg.validateQueues(); err != nil {
		t.Fatal(err)
	}
	got := cfg.queueSettings()
	for key, want := range map[string]string{
		"yarn.scheduler.capacity.root.queues":             "etl,adhoc",
		"yarn.scheduler.capacity.root.etl.queues":         "night,day",
		"yarn.scheduler.capacity.root.etl.night.capacity": "1w",
		"yarn.scheduler.capacity.root.etl.capacity":       "1w",
		"yarn.nodemanager.resource-type.disk-bandwidth":   "100M",
		"yarn.resource-types":                             "disk-bandwidth",
	} {
		if got[key] != want {
			t.Errorf("%s = %q, want %q", key, got[key], want)
		}
	}
	for queue, there := range map[string]bool{"root.etl.night": true, "root.etl": false, QueueProtected: false, "": false} {
		if err := cfg.checkQueue(queue); (err == nil) != there {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
	for _, queues := range [][]string{{"etl"}, {"root"}, {"root.a..b"}, {"root.a", "root.a.b"}, {"root.a", "root.a"}} {
		if err := (&Config{Queues: queues}).validateQueues(); err == nil {
			t.Errorf("queues %q are taken", queues)
		}
	}
	if err := (&Config{DiskBandwidth: -1}).validateQueues(); err == nil {
		t.Error("a bandwidth of -1 is taken")
	}
	// Without these options nothing changes.
	if plain := (&Config{}).queueSettings(); !maps.Equal(plain, properties{}) {
		t.Errorf("a cluster of two queues gets %v", plain)
	}
}
