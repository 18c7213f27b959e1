package hadoop

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"

	"penstock/ops/install"
)

// For a disk bandwidth, penstock install writes the same settings as the tests' cluster has: the
// same keys with the same values, and no others.
func TestInstallWritesTheSameBandwidth(t *testing.T) {
	dir := t.TempDir()
	plain := SiteXML(properties{"yarn.scheduler.capacity.maximum-applications": "10"})
	if err := os.WriteFile(filepath.Join(dir, "capacity-scheduler.xml"), plain, 0o644); err != nil {
		t.Fatal(err)
	}
	o := install.Options{HadoopConf: dir, AgentJar: "/opt/penstock/penstock-agent.jar", Socket: "/run/penstock/agent.sock", DiskBandwidth: "100M"}
	if _, err := install.Apply(o); err != nil {
		t.Fatal(err)
	}
	want := (&Config{DiskBandwidth: 100}).queueSettings()
	want["yarn.scheduler.capacity.maximum-applications"] = "10"
	for _, name := range []string{"resource-types.xml", "node-resources.xml", "capacity-scheduler.xml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var site struct {
			Property []struct {
				Name  string `xml:"name"`
				Value string `xml:"value"`
			} `xml:"property"`
		}
		if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&site); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range site.Property {
			if want[p.Name] != p.Value {
				t.Errorf("%s has %s as %q, the cluster %q", name, p.Name, p.Value, want[p.Name])
			}
			delete(want, p.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("in no file: %v", want)
	}
}
