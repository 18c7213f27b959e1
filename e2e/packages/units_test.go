package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// unit returns the settings of a unit's section [Service], in order; a name may occur several times.
func unit(t *testing.T, name string) [][2]string {
	t.Helper()
	return service(t, name, string(read(t, "../../deploy/systemd/"+name)))
}

// service returns the same of a unit's text.
func service(t *testing.T, name, text string) (settings [][2]string) {
	t.Helper()
	section := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line
		case !ok || section == "":
			t.Errorf("%s:%d: %q is not a setting in a section", name, n+1, line)
		case section == "[Service]":
			settings = append(settings, [2]string{key, value})
		}
	}
	return settings
}

// systemd knows all settings of the units, and finds their programs in the package.
func TestUnits(t *testing.T) {
	for _, name := range []string{"penstock-node.service", "penstock-broker.service"} {
		if len(unit(t, name)) < 5 {
			t.Errorf("%s has hardly any settings", name)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze: the units were only parsed")
		return
	}
	deb, _ := build(t, "1.0.0")
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--extract", deb, root).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	// The units that every system has.
	for _, target := range []string{"sysinit", "basic", "shutdown", "network-online", "local-fs", "multi-user"} {
		if err := os.WriteFile(filepath.Join(root, "usr/lib/systemd/system", target+".target"), []byte("[Unit]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--root="+root, "penstock-node.service", "penstock-broker.service").CombinedOutput()
	if err != nil || len(out) > 0 { // a wrong setting is only a warning
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The capabilities that the unit leaves to the daemon suffice for the mechanisms that root has on this machine. The
// shaper is not tried, because its trial makes a network namespace.
func TestTheCapabilitiesOfTheUnitSuffice(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "node.yaml")
	text := "socket: " + settings + ".sock\ncontrol: {mechanisms: [gate, cgroup, freezer, pacing]}\n"
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Control struct {
			Mechanisms []struct {
				Name      string
				Available bool
				Why       string
			}
		}
	}
	check := func(before ...string) (a answer) {
		t.Helper()
		args := append(before, "../../bin/penstock", "node", "run", "--config", settings, "--check", "--json")
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
		if err == nil {
			err = json.Unmarshal(out, &a)
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return a
	}
	all := check()
	if got := check("setpriv", "--bounding-set", boundingSet(t, unit(t, "penstock-node.service")), "--no-new-privs"); !reflect.DeepEqual(got, all) {
		t.Errorf("with the unit's capabilities:\n%+v\nwith all of root's:\n%+v", got, all)
	}
	if none := check("setpriv", "--bounding-set", "-all"); os.Geteuid() == 0 && reflect.DeepEqual(none, all) {
		t.Errorf("this check sees no difference without any capability: %+v", none)
	}
}

// boundingSet returns a unit's capabilities, as setpriv wants them.
func boundingSet(t *testing.T, settings [][2]string) string {
	t.Helper()
	set := "-all"
	for _, s := range settings {
		if s[0] != "CapabilityBoundingSet" {
			continue
		}
		for _, c := range strings.Fields(s[1]) {
			if !regexp.MustCompile(`^CAP_[A-Z_]+$`).MatchString(c) {
				t.Errorf("capability %q", c)
			}
			set += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
		}
	}
	return set
}
