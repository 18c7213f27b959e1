package doctor

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Parsers of other programs' output. Each accepts any text and returns a value or an error.

// parseProcess reads /proc/PID/status. The library procfs reads neither the groups nor the
// capabilities.
func parseProcess(text string) (*Process, error) {
	p := &Process{}
	found := 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		var err error
		switch key {
		case "Pid":
			if len(fields) == 1 {
				p.PID, err = strconv.Atoi(fields[0])
				found++
			}
		case "Uid":
			p.UID, err = effective(fields)
			found++
		case "Gid":
			p.GID, err = effective(fields)
			found++
		case "Groups":
			for _, f := range fields {
				var g uint32
				if g, err = id(f); err != nil {
					break
				}
				p.Groups = append(p.Groups, g)
			}
		case "CapEff":
			if len(fields) == 1 {
				p.Capabilities, err = strconv.ParseUint(fields[0], 16, 64)
				found++
			}
		}
		if err != nil {
			return nil, fmt.Errorf("process status: %s: %w", key, err)
		}
	}
	if found != 4 {
		return nil, errors.New("process status: no Pid, Uid, Gid or CapEff")
	}
	return p, nil
}

// effective returns the second of the real, effective, saved and file system ids.
func effective(fields []string) (uint32, error) {
	if len(fields) != 4 {
		return 0, fmt.Errorf("found %d ids, expected 4", len(fields))
	}
	return id(fields[1])
}

func id(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// parseBean stores the single bean of a JMX answer in value. It returns false if there is none.
func parseBean(body []byte, value any) (bool, error) {
	var doc struct {
		Beans []json.RawMessage `json:"beans"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return false, fmt.Errorf("JMX: %w", err)
	}
	if len(doc.Beans) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(doc.Beans[0], value); err != nil {
		return false, fmt.Errorf("JMX: %w", err)
	}
	return true, nil
}

// parseConf reads a Hadoop daemon's /conf, in either of the forms it may have.
func parseConf(body []byte) (map[string]string, error) {
	var doc struct {
		Properties []struct {
			JSONKey string `json:"key" xml:"-"`
			Name    string `json:"-" xml:"name"`
			Value   string `json:"value" xml:"value"`
		} `json:"properties" xml:"property"`
	}
	body = bytes.TrimSpace(body)
	var err error
	if bytes.HasPrefix(body, []byte("{")) {
		err = json.Unmarshal(body, &doc)
	} else {
		err = xml.Unmarshal(body, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	conf := map[string]string{}
	for _, p := range doc.Properties {
		conf[p.JSONKey+p.Name] = p.Value
	}
	if len(conf) == 0 {
		return nil, errors.New("configuration: it has no properties")
	}
	return conf, nil
}

// parseDataDirs reads dfs.datanode.data.dir: paths or file URIs, each with its
// storage type before it if there is one, such as [SSD]file:///data/1.
func parseDataDirs(text string) []string {
	var dirs []string
	for _, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		if strings.HasPrefix(item, "[") {
			if _, rest, ok := strings.Cut(item, "]"); ok {
				item = strings.TrimSpace(rest)
			}
		}
		if u, err := url.Parse(item); err == nil && (u.Scheme == "file" || u.Scheme == "") && u.Path != "" {
			item = u.Path
		}
		if strings.HasPrefix(item, "/") {
			dirs = append(dirs, path.Clean(item))
		}
	}
	return dirs
}

// parseRelease returns the first two numbers of a kernel's or Hadoop's version.
func parseRelease(text string) (major, minor int, err error) {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 || !strings.HasPrefix(text, parts[0]+"."+parts[1]) {
		return 0, 0, fmt.Errorf("version %q: want two numbers such as 6.5", text)
	}
	if major, err = strconv.Atoi(parts[0]); err == nil {
		minor, err = strconv.Atoi(parts[1])
	}
	return major, minor, err
}

// parseJava returns 17 for "17" and 8 for "1.8".
func parseJava(text string) (int, error) {
	text = strings.TrimPrefix(text, "1.")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("version %q of Java: not a number", text)
	}
	return n, nil
}
