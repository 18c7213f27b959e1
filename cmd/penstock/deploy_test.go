package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"penstock/node/config"
)

const deployed = "../../deploy"

// parses fails the test if the program does not have the command, or the command not one of its flags.
func parses(t *testing.T, where string, args []string) {
	t.Helper()
	cmd, rest, err := newRoot().Find(args)
	if err == nil && (!cmd.HasParent() || !cmd.Runnable()) {
		err = errors.New("there is no such command")
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: penstock %s: %v", where, strings.Join(args, " "), err)
	}
}

// documents returns the YAML documents of a file in deploy/.
func documents(t *testing.T, path string) (all []any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var d any
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, d)
	}
}

// walk calls visit for each mapping in a document.
func walk(d any, visit func(map[string]any)) {
	switch d := d.(type) {
	case map[string]any:
		visit(d)
		for _, v := range d {
			walk(v, visit)
		}
	case []any:
		for _, v := range d {
			walk(v, visit)
		}
	}
}

// words returns the elements of a list as texts.
func words(list any) (all []string) {
	values, _ := list.([]any)
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// The manifests run commands that exist, with settings that are good, and mount what they name.
func TestKubernetesManifests(t *testing.T) {
	kinds := map[string]bool{}
	for _, name := range []string{"node.yaml", "broker.yaml"} {
		for _, d := range documents(t, filepath.Join(deployed, "kubernetes", name)) {
			var o struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
				Metadata   struct{ Name, Namespace string }
				Data       map[string]string
				Spec       struct {
					Template struct {
						Spec struct{ Volumes []struct{ Name string } }
					}
				}
			}
			text, err := yaml.Marshal(d)
			if err == nil {
				err = yaml.Unmarshal(text, &o)
			}
			if err != nil || o.APIVersion == "" || o.Metadata.Name == "" || (o.Metadata.Namespace == "") != (o.Kind == "Namespace") {
				t.Errorf("%s: %v, %+v", name, err, o)
			}
			kinds[o.Kind] = true
			if o.Kind == "ConfigMap" {
				dir := t.TempDir()
				for file, content := range o.Data {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := config.CheckNode(filepath.Join(dir, "node.yaml")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			volumes := map[string]bool{}
			for _, v := range o.Spec.Template.Spec.Volumes {
				volumes[v.Name] = true
			}
			used := 0
			walk(d, func(m map[string]any) {
				if m["image"] != nil && m["command"] == nil {
					parses(t, name, words(m["args"]))
				}
				if m["mountPath"] != nil {
					used++
					if !volumes[fmt.Sprint(m["name"])] {
						t.Errorf("%s: no volume for %v", name, m)
					}
				}
			})
			if used < len(volumes) {
				t.Errorf("%s: %d mounts of %d volumes", name, used, len(volumes))
			}
		}
	}
	for _, kind := range []string{"Namespace", "ConfigMap", "DaemonSet", "Deployment", "Service", "PersistentVolumeClaim"} {
		if !kinds[kind] {
			t.Errorf("no %s", kind)
		}
	}
}

// The role runs commands that exist, its defaults are good settings, and each variable has a default.
func TestAnsibleRole(t *testing.T) {
	defaults, registered, used := map[string]any{}, map[string]bool{}, map[string]bool{}
	variable := regexp.MustCompile(`\bpenstock_[a-z_]+\b`)
	commands := 0
	err := filepath.WalkDir(filepath.Join(deployed, "ansible"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yml" {
			return err
		}
		for _, d := range documents(t, path) {
			if strings.HasSuffix(path, "defaults/main.yml") {
				defaults, _ = d.(map[string]any)
				continue
			}
			walk(d, func(m map[string]any) {
				if argv := words(m["argv"]); len(argv) > 0 {
					commands++
					parses(t, path, argv[1:])
				}
				if line, ok := m["validate"].(string); ok {
					commands++
					parses(t, path, strings.Fields(line)[1:])
				}
				if name, ok := m["register"].(string); ok {
					registered[name] = true
				}
				for key, v := range m {
					if list, ok := v.([]any); ok && key == "that" {
						v = fmt.Sprint(list...)
					}
					if text, ok := v.(string); ok && key != "name" && key != "hosts" {
						for _, name := range variable.FindAllString(text, -1) {
							used[name] = true
						}
					}
					if vars, ok := v.(map[string]any); ok && key == "vars" {
						for name := range vars {
							used[name] = true
						}
					}
				}
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if commands < 4 {
		t.Errorf("%d commands were found", commands)
	}
	for name := range used {
		if _, ok := defaults[name]; !ok && !registered[name] {
			t.Errorf("the variable %s has no default", name)
		}
	}
	for name := range defaults {
		if !used[name] {
			t.Errorf("nothing uses the variable %s", name)
		}
	}
	parses(t, "penstock_broker_flags", append([]string{"broker", "run"}, strings.Fields(fmt.Sprint(defaults["penstock_broker_flags"]))...))

	dir := t.TempDir()
	settings, _ := defaults["penstock_settings"].(map[string]any)
	settings["users"] = []string{"root"} // the machine of this test has no hdfs
	settings["weights"] = "weights.yaml"
	for file, content := range map[string]any{"node.yaml": settings, "weights.yaml": defaults["penstock_weights"]} {
		text, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := config.CheckNode(filepath.Join(dir, "node.yaml")); err != nil {
		t.Error(err)
	}
}

// The units and the broker's flags, also those in comments, name commands and flags that exist.
func TestCommandsOfTheUnits(t *testing.T) {
	flags := regexp.MustCompile(`(?m)^#?PENSTOCK_BROKER="(.*)"$`)
	start := regexp.MustCompile(`(?m)^ExecStart=/opt/penstock/penstock (.*)$`)
	text := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(deployed, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var found int
	for _, m := range flags.FindAllStringSubmatch(text("packages/broker.env"), -1) {
		line := start.FindStringSubmatch(text("systemd/penstock-broker.service"))
		if line == nil {
			t.Fatal("the broker's unit has no ExecStart")
		}
		parses(t, "packages/broker.env", strings.Fields(strings.Replace(line[1], "$PENSTOCK_BROKER", m[1], 1)))
		found++
	}
	if found != 2 {
		t.Errorf("%d lines with the broker's flags", found)
	}
	for _, m := range start.FindAllStringSubmatch(text("systemd/penstock-node.service"), -1) {
		parses(t, "systemd/penstock-node.service", strings.Fields(m[1]))
		found++
	}
	if found != 3 {
		t.Error("the daemon's unit has no ExecStart")
	}
	for _, name := range strings.Fields(regexp.MustCompile(`(?m)^COPY (.*) \S+$`).FindStringSubmatch(text("image/Dockerfile"))[1]) {
		if !strings.Contains(text("packages/nfpm.yaml"), "src: bin/"+name+"\n") {
			t.Errorf("the image has %s, and the packages do not", name)
		}
	}
}
