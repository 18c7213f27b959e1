package storage

import (
	"os"
	"path/filepath"
	"testing"

	"penstock/lab/ledger"
	"penstock/lab/netns"
)

// Machines are hosts for a test.
type Machines struct {
	Hosts   []*Host
	Folders []string // of each host's data
	Mount   string   // an empty folder, to mount the file system at
	Dir     string   // for other files
	Network *netns.Network
}

// ForTest makes n hosts that end with the test. The cache is that of Fetch.
func ForTest(t testing.TB, cacheDir string, n int) *Machines {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	must(err)
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	programs, err := Fetch(t.Context(), cacheDir, t.Logf)
	must(err)
	m := &Machines{Mount: filepath.Join(dir, "mount"), Dir: filepath.Join(dir, "more")}
	m.Network, err = netns.New(book, n)
	must(err)
	m.Hosts, err = Hosts(t.Context(), book, m.Network.Machines, programs, dir)
	must(err)
	for _, h := range m.Hosts {
		m.Folders = append(m.Folders, filepath.Join(dir, "data", h.Name))
	}
	for _, d := range append([]string{m.Mount, m.Dir}, m.Folders...) {
		must(os.MkdirAll(d, 0o755))
	}
	return m
}

// Gluster starts GlusterFS and mounts it on each host.
func (m *Machines) Gluster(t testing.TB, o GlusterOptions) *Gluster {
	t.Helper()
	o.Bricks = m.Folders
	g, err := StartGluster(t.Context(), m.Hosts, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range m.Hosts {
		if _, err := g.Mount(t.Context(), h, m.Mount); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// Moose starts MooseFS and mounts it on each host.
func (m *Machines) Moose(t testing.TB, o MooseOptions) *Moose {
	t.Helper()
	o.Chunks = m.Folders
	fs, err := StartMoose(t.Context(), m.Hosts, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range m.Hosts {
		if _, err := fs.Mount(t.Context(), h, m.Mount); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// Run runs a program on a host and returns its output.
func (m *Machines) Run(t testing.TB, host int, argv ...string) string {
	t.Helper()
	out, err := m.Hosts[host].Run(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
