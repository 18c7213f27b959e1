package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// defaultScheduler begins as Hadoop's own capacity-scheduler.xml does.
const defaultScheduler = `<!--
  Licensed under the Apache License, Version 2.0 (the "License");
-->
<configuration>

  <property>
    <name>yarn.scheduler.capacity.maximum-applications</name>
    <value>10000</value>
    <description>
      Maximum number of applications that can be pending and running.
    </description>
  </property>

  <property>
    <name>yarn.scheduler.capacity.resource-calculator</name>
    <value>org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator</value>
    <description>
      The default i.e. DefaultResourceCalculator only uses Memory while
      DominantResourceCalculator uses dominant-resource to compare
      multi-dimensional resources such as Memory, CPU etc.
    </description>
  </property>

</configuration>
`

// gpuTypes is a resource-types.xml with another resource.
const gpuTypes = `<?xml version="1.0"?>
<configuration>
  <property>
     <name>yarn.resource-types</name>
     <value>yarn.io/gpu</value>
  </property>
</configuration>
`

func siteProperty(key, value string) string {
	return "<property><name>" + key + "</name><value>" + value + "</value></property>"
}

func withBandwidth(o Options, bandwidth string) Options {
	o.DiskBandwidth = bandwidth
	return o
}

// values returns the keys' values in one of the Hadoop folder's files.
func values(t *testing.T, dir, name string, keys ...string) string {
	t.Helper()
	doc, err := siteOf(filepath.Join(dir, "hadoop", name))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, k := range keys {
		e, _ := doc.effective(k)
		all = append(all, e.value)
	}
	return strings.Join(all, " ")
}

// Bandwidth is added to existing settings. It stays if a run does not mention it. It can be changed
// and removed separately.
func TestBandwidth(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "hadoop/capacity-scheduler.xml", defaultScheduler)
	put(t, dir, "hadoop/resource-types.xml", gpuTypes)
	original := snapshot(t, dir)
	applied(t, options(dir))
	without := snapshot(t, dir)

	r := applied(t, withBandwidth(options(dir), "200M"))
	if len(r.Restart) != 3 || r.Restart[0] != restartYARN || !strings.Contains(strings.Join(r.Notes, "\n"), "CPU as well") {
		t.Errorf("restart %q, notes %q", r.Restart, r.Notes)
	}
	with := snapshot(t, dir)
	for name, want := range map[string]string{
		"capacity-scheduler.xml": strings.Replace(defaultScheduler, "<value>"+defaultCalculator, "<value>"+dominantCalculator, 1),
		"resource-types.xml": `<?xml version="1.0"?>
<configuration>
  <property>
     <name>yarn.resource-types</name>
     <value>yarn.io/gpu,disk-bandwidth</value>
  </property>
  <!-- ` + ourComment + ` -->
  <property>
    <name>yarn.resource-types.disk-bandwidth.units</name>
    <value>M</value>
  </property>
</configuration>
`,
		"node-resources.xml": `<?xml version="1.0" encoding="UTF-8"?>
<configuration>
  <!-- ` + ourComment + ` -->
  <property>
    <name>yarn.nodemanager.resource-type.disk-bandwidth</name>
    <value>200M</value>
  </property>
</configuration>
`,
	} {
		if _, got, _ := strings.Cut(with[filepath.Join("hadoop", name)], "\n"); got != want {
			t.Errorf("%s is\n%s\nand should be\n%s", name, got, want)
		}
	}
	for _, bandwidth := range []string{"", "200M"} {
		if r := applied(t, withBandwidth(options(dir), bandwidth)); r.Changes() || r.Done {
			t.Errorf("%q again: %+v", bandwidth, r)
		}
	}
	same(t, "again", snapshot(t, dir), with)

	for _, f := range applied(t, withBandwidth(options(dir), "80M")).Files {
		if changed := f.Action != Keep; changed != strings.HasSuffix(f.Path, "node-resources.xml") {
			t.Errorf("less bandwidth: %s of %s", f.Action, f.Path)
		}
	}
	if got := values(t, dir, "node-resources.xml", nodeBandwidth); got != "80M" {
		t.Errorf("bandwidth is %s", got)
	}
	applied(t, withBandwidth(options(dir), "0"))
	same(t, "taken out", snapshot(t, dir), without)
	if r := applied(t, options(dir)); r.Changes() || r.Done {
		t.Errorf("taken out, and again: %+v", r)
	}
	applied(t, withBandwidth(options(dir), "200M"))
	if _, err := Remove(options(dir)); err != nil {
		t.Fatal(err)
	}
	same(t, "removed", snapshot(t, dir), original)
}

// resource-types.xml hides a list in yarn-site.xml, so it gets that list's items, too.
func TestBandwidthBesideAListElsewhere(t *testing.T) {
	for list, want := range map[string]string{
		"yarn.io/gpu, yarn.io/fpga":   "yarn.io/gpu, yarn.io/fpga,disk-bandwidth",
		"disk-bandwidth,yarn.io/gpu":  "yarn.io/gpu,disk-bandwidth",
		"disk-bandwidth":              "disk-bandwidth",
		" \n yarn.io/gpu\n":           "yarn.io/gpu,disk-bandwidth",
		"memory-mb,disk-bandwidth, ,": "memory-mb,disk-bandwidth",
	} {
		dir := scratch(t)
		put(t, dir, "hadoop/yarn-site.xml", "<configuration>"+siteProperty(resourceTypes, list)+siteProperty(schedulerClass, "a.FairScheduler")+"</configuration>")
		original := snapshot(t, dir)
		r := applied(t, withBandwidth(options(dir), "200M"))
		if got := values(t, dir, "resource-types.xml", resourceTypes); got != want {
			t.Errorf("beside %q it is %q", list, got)
		}
		notes := strings.Join(r.Notes, "\n")
		for _, says := range []string{"capacity-scheduler.xml is not there", "a.FairScheduler"} {
			if !strings.Contains(notes, says) {
				t.Errorf("%q is not in %q", says, notes)
			}
		}
		if r := applied(t, options(dir)); r.Changes() || r.Done {
			t.Errorf("again: %+v", r)
		}
		if _, err := Remove(options(dir)); err != nil {
			t.Fatal(err)
		}
		same(t, "removed", snapshot(t, dir), original)
	}
}

// If somebody adds a type to yarn-site.xml later, the inspection reports that it is hidden, until
// it is copied. A list that was in resource-types.xml before Penstock hid the type already.
func TestBandwidthBesideAListThatGrows(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		dir := scratch(t)
		yarn := func(list string) {
			put(t, dir, "hadoop/yarn-site.xml", "<configuration>"+siteProperty(resourceTypes, list)+"</configuration>")
		}
		yarn("yarn.io/gpu")
		if theirs {
			put(t, dir, "hadoop/resource-types.xml", gpuTypes)
		}
		o := withJar(t, withBandwidth(options(dir), "200M"))
		tells := func(when, want string) {
			t.Helper()
			if w := wrong(t, o); !strings.Contains(w, want) || (w == "") != (want == "") {
				t.Errorf("%s: %q, want %q", when, w, want)
			}
		}
		applied(t, o)
		tells("as written", "")
		yarn("yarn.io/gpu, yarn.io/fpga")
		if theirs {
			tells("added to a list that was hidden", "")
			continue
		}
		tells("added", "hides yarn.io/fpga, which yarn-site.xml has")
		applied(t, withBandwidth(o, ""))
		tells("taken over", "")
		if got := values(t, dir, "resource-types.xml", resourceTypes); got != "yarn.io/gpu, yarn.io/fpga,disk-bandwidth" {
			t.Errorf("taken over: %q", got)
		}
	}
}

// If the CapacityScheduler's settings are in a permanent store, a change of its file is not enough.
func TestBandwidthAndTheSchedulersStore(t *testing.T) {
	for store, noted := range map[string]bool{"file": false, "memory": false, "zk": true, "leveldb": true, "fs": true} {
		dir := scratch(t)
		put(t, dir, "hadoop/yarn-site.xml", "<configuration>"+siteProperty(schedulerStore, store)+"</configuration>")
		notes := strings.Join(applied(t, withBandwidth(options(dir), "200M")).Notes, "\n")
		if strings.Contains(notes, "yarn schedulerconf -global "+resourceCalculator+"=") != noted {
			t.Errorf("%s: %s", store, notes)
		}
	}
}

// Bandwidth can be removed alone even if one of its files was changed by hand.
func TestBandwidthTakenOutAfterAChangeByHand(t *testing.T) {
	dir := scratch(t)
	applied(t, options(dir))
	without := snapshot(t, dir)
	applied(t, withBandwidth(options(dir), "200M"))
	byHand := "<configuration>" + siteProperty(nodeBandwidth, "150M") + "</configuration>\n"
	put(t, dir, "hadoop/node-resources.xml", byHand)
	with := snapshot(t, dir)
	for _, bandwidth := range []string{"", "200M", "0"} {
		o := withBandwidth(options(dir), bandwidth)
		o.Force = false
		if _, err := Apply(o); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "run --disk-bandwidth 0 --apply --force") {
			t.Errorf("%q: %v", bandwidth, err)
		}
	}
	o := withBandwidth(options(dir), "200M") // wanted, so that nothing remains
	o.Force = true
	if _, err := Apply(o); !errors.Is(err, ErrConflict) {
		t.Errorf("forced, and wanted: %v", err)
	}
	same(t, "refused", snapshot(t, dir), with)
	o.DiskBandwidth = "0"
	if r := applied(t, o); !strings.Contains(strings.Join(r.Notes, "\n"), "node-resources.xml: ") {
		t.Errorf("notes %q", r.Notes)
	}
	without[filepath.Join("hadoop", "node-resources.xml")] = with[filepath.Join("hadoop", "node-resources.xml")]
	same(t, "taken out", snapshot(t, dir), without)
	if r := applied(t, options(dir)); r.Changes() || r.Done {
		t.Errorf("again: %+v", r)
	}
}

// withJar puts a jar where the options name one.
func withJar(t *testing.T, o Options) Options {
	t.Helper()
	o.AgentJar = filepath.Join(t.TempDir(), "penstock-agent.jar")
	put(t, filepath.Dir(o.AgentJar), filepath.Base(o.AgentJar), "PK")
	return o
}

// wrong returns what the inspection finds wrong in the Hadoop folder.
func wrong(t *testing.T, o Options) string {
	t.Helper()
	i, err := InspectHadoop(o.HadoopConf)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(i.Wrong, "\n")
}

// Another value or unit is a conflict. --force overwrites it if that helps. A file that is not XML
// is an error.
func TestBandwidthInTheWay(t *testing.T) {
	const units = resourceTypes + "." + bandwidthResource + ".units"
	site := func(properties ...string) string {
		return "<configuration>" + strings.Join(properties, "") + "</configuration>"
	}
	for what, c := range map[string]struct {
		file, content, says string
		hard                bool
	}{
		"another value":         {"node-resources.xml", site(siteProperty(nodeBandwidth, "100M")), `is "100M"`, false},
		"another unit":          {"resource-types.xml", site(siteProperty(resourceTypes, "disk-bandwidth"), siteProperty(units, "Ki")), `units is "Ki"`, false},
		"another calculator":    {"capacity-scheduler.xml", site(siteProperty(resourceCalculator, "a.Calculator")), `is "a.Calculator"`, false},
		"a value elsewhere":     {"yarn-site.xml", site(siteProperty(nodeBandwidth, "100M")), `yarn-site.xml sets ` + nodeBandwidth, false},
		"a final one elsewhere": {"yarn-site.xml", strings.Replace(site(siteProperty(nodeBandwidth, "100M")), "</property>", "<final>true</final></property>", 1), "would win", true},
		"a final list":          {"yarn-site.xml", strings.Replace(site(siteProperty(resourceTypes, "yarn.io/gpu")), "</property>", "<final>true</final></property>", 1), "would win", true},
		"no XML":                {"node-resources.xml", "disk-bandwidth=200M\n", "node-resources.xml: has no root element", true},
		"cut off":               {"resource-types.xml", "<configuration>" + siteProperty(resourceTypes, "yarn.io/gpu"), "<configuration> is not closed", true},
		"another root":          {"capacity-scheduler.xml", "<allocations/>", "its root is <allocations>", true},
	} {
		t.Run(what, func(t *testing.T) {
			dir := scratch(t)
			put(t, dir, "hadoop/"+c.file, c.content)
			original := snapshot(t, dir)
			o := withJar(t, withBandwidth(options(dir), "200M"))
			o.Force = false
			if _, err := Apply(o); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.file) {
				t.Errorf("%v", err)
			}
			same(t, "refused", snapshot(t, dir), original)
			o.Force = true
			if _, err := Apply(o); c.hard != (err != nil) {
				t.Errorf("forced: %v", err)
			}
			if _, err := Remove(withBandwidth(o, "")); err != nil {
				t.Error(err)
			}
			same(t, "forced and removed", snapshot(t, dir), original)
			// Without --disk-bandwidth these files are not mentioned.
			if c.file != "yarn-site.xml" {
				applied(t, withBandwidth(o, ""))
			}
		})
	}
	// The same value without its unit is equal.
	dir := scratch(t)
	put(t, dir, "hadoop/node-resources.xml", site(siteProperty(nodeBandwidth, "200")))
	o := withBandwidth(options(dir), "200M")
	if r := applied(t, o); strings.Contains(strings.Join(r.Notes, " "), "overwritten") {
		t.Errorf("200 for 200M: %q", r.Notes)
	}
}

// If a run that adds or removes bandwidth is killed at any step, the next run has the same result
// as an undisturbed one.
func TestBandwidthKilled(t *testing.T) {
	hadoop := func(dir, bandwidth string) Options {
		o := withBandwidth(options(dir), bandwidth)
		o.SparkConf = ""
		return o
	}
	dir := scratch(t)
	put(t, dir, "hadoop/capacity-scheduler.xml", defaultScheduler)
	put(t, dir, "hadoop/resource-types.xml", gpuTypes)
	original := snapshot(t, dir)
	form := map[string]map[string]string{}
	start := map[string]string{}
	for _, bandwidth := range []string{"0", "200M"} {
		applied(t, hadoop(dir, bandwidth))
		form[bandwidth], start[bandwidth] = snapshot(t, dir), copied(t, dir)
	}
	for from, to := range map[string]string{"0": "200M", "200M": "0"} {
		for n, reached := 0, true; reached; n++ {
			dir := copied(t, start[from])
			o := hadoop(dir, to)
			killed := killedAt(n, &o)
			if _, err := Apply(o); *killed != errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			reached = *killed
			if n%2 == 0 {
				applied(t, hadoop(dir, to))
				same(t, "killed, then again", snapshot(t, dir), form[to])
			} else {
				if _, err := Remove(hadoop(dir, "")); err != nil {
					t.Error(err)
				}
				same(t, "killed, then removed", snapshot(t, dir), original)
			}
			if t.Failed() {
				t.Fatalf("%s to %s, killed at step %d", from, to, n)
			}
		}
	}
}

func TestBandwidthInspected(t *testing.T) {
	dir := scratch(t)
	put(t, dir, "hadoop/capacity-scheduler.xml", defaultScheduler)
	o := withJar(t, withBandwidth(options(dir), "200M"))
	applied(t, o)
	if w := wrong(t, o); w != "" {
		t.Errorf("as written: %s", w)
	}
	if err := os.Remove(filepath.Join(o.HadoopConf, "node-resources.xml")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "hadoop/capacity-scheduler.xml", defaultScheduler)
	for _, says := range []string{"node-resources.xml is not there", "capacity-scheduler.xml has " + resourceCalculator} {
		if w := wrong(t, o); !strings.Contains(w, says) {
			t.Errorf("%q is not in %s", says, w)
		}
	}
}

func TestBandwidthValidate(t *testing.T) {
	good := Options{HadoopConf: "c", AgentJar: testJar, Socket: testSocket}
	for _, b := range []string{"", "0", "1M", "200M", "999999M"} {
		if err := withBandwidth(good, b).Validate(false); err != nil {
			t.Errorf("%q: %v", b, err)
		}
	}
	for _, b := range []string{"200", "0M", "-1M", "200MB", "200Mi", "2G", "1000000M", "1.5M", " 200M"} {
		if err := withBandwidth(good, b).Validate(false); err == nil || !strings.Contains(err.Error(), "as in 200M") {
			t.Errorf("%q: %v", b, err)
		}
	}
	good.HadoopConf, good.SparkConf = "", "s"
	if err := withBandwidth(good, "200M").Validate(false); err == nil || !strings.Contains(err.Error(), "--hadoop-conf") {
		t.Errorf("for Spark only: %v", err)
	}
	for _, b := range []string{"0", "200M"} {
		if err := withBandwidth(good, b).Validate(true); err == nil || !strings.Contains(err.Error(), "--disk-bandwidth 0 --apply") {
			t.Errorf("all removed with %q: %v", b, err)
		}
	}
}
