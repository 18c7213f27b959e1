package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/status"
)

const (
	askWait   = 10 * time.Second
	maxAnswer = 16 << 20 // bytes; a /conf has some 200 KB
	maxProc   = 64 << 10
)

// Gather looks at the node: the daemon at address (host:port), the DataNode's
// web address, and the machine it runs on. It changes nothing, and what it cannot
// find out is in the facts as an error.
func Gather(ctx context.Context, address, dataNode, build string) *Facts {
	f := &Facts{Time: time.Now(), Build: build, Address: address}
	f.Before = monotonic()
	f.Status, f.StatusErr = status.Fetch(ctx, address)
	f.After = monotonic()
	f.DataNode = askDataNode(ctx, dataNode)
	if f.Status != nil {
		f.Daemon, f.DaemonErr = readProcess(f.Status.PID)
		f.Socket, f.SocketErr = pathTo(f.Status.Socket)
	}
	if f.DataNode.PID != 0 {
		f.Node, _ = readProcess(f.DataNode.PID) // without it the socket is judged by less
	}
	f.Directories = f.directories()
	f.KernelRelease = release()
	f.CachestatErr = tryCachestat()
	f.Memory = readMemory()
	f.Synchronised, f.ClockErr = synchronised()
	return f
}

func askDataNode(ctx context.Context, base string) DataNode {
	d := DataNode{URL: strings.TrimSuffix(base, "/")}
	bean := func(name string, into any) (bool, error) {
		body, err := get(ctx, d.URL+"/jmx?qry="+url.QueryEscape(name))
		if err != nil {
			return false, err
		}
		return parseBean(body, into)
	}
	var info struct{ Version string }
	found, err := bean("Hadoop:service=DataNode,name=DataNodeInfo", &info)
	if err == nil && !found {
		err = errors.New("it answers, but is no DataNode")
	}
	if err != nil {
		d.Err = fmt.Errorf("DataNode %s: %w", base, err)
		return d
	}
	d.Version, _, _ = strings.Cut(info.Version, ",") // a revision follows
	var java struct{ Name, SpecVersion string }
	if ok, err := bean("java.lang:type=Runtime", &java); ok && err == nil {
		d.Java = java.SpecVersion
		pid, _, _ := strings.Cut(java.Name, "@")
		d.PID, _ = strconv.Atoi(pid)
	}
	var agent Agent
	if ok, err := bean("penstock:type=Agent", &agent); ok && err == nil {
		d.Agent = &agent
	}
	body, err := get(ctx, d.URL+"/conf")
	if err == nil {
		d.Conf, err = parseConf(body)
	}
	if err != nil {
		d.ConfErr = fmt.Errorf("the DataNode's configuration: %w", err)
	}
	return d
}

func get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("%s: over %d bytes", address, maxAnswer)
	}
	return body, err
}

func readProcess(pid int) (*Process, error) {
	text, err := readFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	return parseProcess(text)
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProc))
	return string(b), err
}

// pathTo looks at a socket and every folder on the way to it.
func pathTo(socket string) ([]Path, error) {
	var names []string
	for name := filepath.Clean(socket); ; name = filepath.Dir(name) {
		names = append(names, name)
		if name == filepath.Dir(name) {
			break
		}
	}
	slices.Reverse(names)
	var paths []Path
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		p := Path{Name: name, Mode: st.Mode()}
		if s, ok := st.Sys().(*syscall.Stat_t); ok {
			p.UID, p.GID = s.Uid, s.Gid
		}
		paths = append(paths, p)
	}
	if paths[len(paths)-1].Mode&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is no socket", socket)
	}
	return paths, nil
}

// directories are the DataNode's by its configuration, else what its agent named.
func (f *Facts) directories() []Directory {
	names := parseDataDirs(f.DataNode.Conf["dfs.datanode.data.dir"])
	if len(names) == 0 && f.Status != nil {
		for _, a := range f.Status.Agents {
			if f.DataNode.PID == 0 || int(a.PID) == f.DataNode.PID {
				names = append(names, a.Directories...)
			}
		}
	}
	var dirs []Directory
	for _, name := range names {
		d := Directory{Name: name}
		st, err := os.Stat(name)
		if err != nil {
			d.Err = err
		} else if s, ok := st.Sys().(*syscall.Stat_t); ok {
			d.Owner = s.Uid
		}
		dirs = append(dirs, d)
	}
	return dirs
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// tryCachestat asks about a file in memory, our own; what the daemon may ask about
// is the check of rights.
func tryCachestat() error {
	fd, err := unix.MemfdCreate("doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Cachestat(uint(fd), &unix.CachestatRange{Len: 1}, &unix.Cachestat_t{}, 0)
}

func readMemory() (m Memory) {
	text, err := readFile("/proc/meminfo")
	if err == nil {
		m.Available, err = parseAvailable(text)
	}
	m.Err = err
	for name, to := range map[string]*int64{
		"dirty_background_bytes": &m.BackgroundBytes, "dirty_background_ratio": &m.BackgroundRatio,
		"dirty_bytes": &m.DirtyBytes, "dirty_ratio": &m.DirtyRatio,
	} {
		text, err := readFile("/proc/sys/vm/" + name)
		if err == nil {
			*to, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
		m.Err = errors.Join(m.Err, err)
	}
	return m
}

func synchronised() (bool, error) {
	const timeError = 5 // TIME_ERROR of adjtimex(2)
	state, err := unix.Adjtimex(&unix.Timex{})
	return err == nil && state != timeError, err
}

func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
