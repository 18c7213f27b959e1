package cgroup

import (
	"fmt"
	"strconv"
	"strings"
)

// Device is a block device, by its numbers.
type Device struct{ Major, Minor uint32 }

// String returns the numbers as the kernel writes them, such as 8:16.
func (d Device) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

func parseDevice(text string) (Device, error) {
	major, minor, ok := strings.Cut(text, ":")
	a, err1 := strconv.ParseUint(major, 10, 12)
	b, err2 := strconv.ParseUint(minor, 10, 20)
	if d := (Device{uint32(a), uint32(b)}); ok && err1 == nil && err2 == nil && d.String() == text {
		return d, nil
	}
	return Device{}, fmt.Errorf("%q is not the number of a device, such as 8:16", text)
}

// Files of cgroups.
const (
	fileMax         = "io.max"
	fileWeight      = "io.weight"
	fileBFQ         = "io.bfq.weight"
	fileBFQ1        = "blkio.bfq.weight"
	fileBFQ1Device  = "blkio.bfq.weight_device"
	fileControllers = "cgroup.controllers"
	fileSubtree     = "cgroup.subtree_control"
)

// knob is one value of a cgroup that can be set on its own.
type knob struct {
	file   string
	device string // such as 8:16; empty if the value holds for all devices
	key    string // the name of the value, if the file has several for a device
}

// form is the form of a file.
type form struct {
	keys  []string // of the values for one device; nil: there is one value, without a key
	none  string   // the value for a device that is not listed; writing it removes the device from the list
	plain bool     // the file is one value, without devices
}

var (
	keysMax = []string{"rbps", "wbps", "riops", "wiops"}
	// keysV1 are the files that correspond to keysMax.
	keysV1 = []string{
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
	}
	forms = map[string]form{
		keysV1[0]: {none: "0"}, keysV1[1]: {none: "0"}, keysV1[2]: {none: "0"}, keysV1[3]: {none: "0"},
		fileMax:        {keys: keysMax, none: "max"},
		fileWeight:     {none: "default"},
		fileBFQ:        {none: "default"},
		fileBFQ1Device: {none: "default"},
		fileBFQ1:       {plain: true},
		fileSubtree:    {keys: []string{controllerV2}, none: off, plain: true},
	}
)

// Values of fileSubtree for a controller.
const (
	on  = "on"
	off = "off"
)

// get returns the knob's value in the text of its file. The value has the form of set's argument, so that the
// two can be compared.
func (k knob) get(text string) string {
	form := forms[k.file]
	if k.file == fileSubtree {
		for _, controller := range strings.Fields(text) {
			if controller == k.key {
				return on
			}
		}
		return off
	}
	if form.plain {
		return strings.TrimSpace(text)
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != k.device {
			continue
		}
		if k.key == "" {
			return fields[1]
		}
		for _, f := range fields[1:] {
			if value, ok := strings.CutPrefix(f, k.key+"="); ok {
				return value
			}
		}
	}
	return form.none
}

// set returns the text to write in order to set the knob.
func (k knob) set(value string) string {
	switch {
	case k.file == fileSubtree && value == on:
		return "+" + k.key
	case k.file == fileSubtree:
		return "-" + k.key
	case k.device == "":
		return value
	case k.key == "":
		return k.device + " " + value
	}
	return k.device + " " + k.key + "=" + value
}

func (k knob) check() error {
	form, ok := forms[k.file]
	if !ok {
		return fmt.Errorf("the mechanism cgroup does not change a file %q", k.file)
	}
	if form.plain != (k.device == "") {
		return fmt.Errorf("%s: the device %q does not fit this file", k.file, k.device)
	}
	if !form.plain {
		if _, err := parseDevice(k.device); err != nil {
			return err
		}
	}
	for _, key := range form.keys {
		if k.key == key {
			return nil
		}
	}
	if len(form.keys) > 0 || k.key != "" {
		return fmt.Errorf("%s has no value %q", k.file, k.key)
	}
	return nil
}

// target is the knob and the cgroup of a change in the journal. Its text is the Target of the change. The
// text contains the inode of the cgroup, so that a cgroup and a later one of the same name are two targets.
type target struct {
	version Version
	knob    knob
	id      uint64
	path    string // last, because it may contain spaces
}

func (t target) String() string {
	device, key := t.knob.device, t.knob.key
	if device == "" {
		device = "-"
	}
	if key == "" {
		key = "-"
	}
	return fmt.Sprintf("%s %s %s %s %d %s", t.version, t.knob.file, device, key, t.id, t.path)
}

// parseTarget reads the Target of a change. It accepts exactly what String returns.
func parseTarget(text string) (t target, err error) {
	fields := strings.SplitN(text, " ", 6)
	if len(fields) != 6 {
		return target{}, fmt.Errorf("%q does not name a value of a cgroup", text)
	}
	if t.version, err = parseVersion(fields[0]); err != nil {
		return target{}, err
	}
	t.knob.file = fields[1]
	if fields[2] != "-" {
		t.knob.device = fields[2]
	}
	if fields[3] != "-" {
		t.knob.key = fields[3]
	}
	if err := t.knob.check(); err != nil {
		return target{}, err
	}
	if t.id, err = strconv.ParseUint(fields[4], 10, 64); err != nil {
		return target{}, fmt.Errorf("%q is not the inode of a cgroup", fields[4])
	}
	t.path = fields[5]
	if t.String() != text {
		return target{}, fmt.Errorf("%q does not name a value of a cgroup", text)
	}
	return t, nil
}

// group returns the cgroup of the target in the hierarchy that is mounted now.
func (t target) group() (Group, error) {
	controller := controllerV1
	if t.version == V2 {
		controller = controllerV2
	}
	h, err := Find(t.version, controller)
	return Group{Hierarchy: h, Path: t.path, ID: t.id}, err
}
