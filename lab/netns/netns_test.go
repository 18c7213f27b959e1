package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/lab/ledger"
)

const (
	patience = 20 * time.Second // bounds every wait for an event
	childDir = "PENSTOCK_NETNS_CHILD"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// child makes a network and waits to be killed.
func child(dir string) error {
	book, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	w, err := New(book, 1)
	if err != nil {
		return err
	}
	if _, err := w.Here(); err != nil {
		return err
	}
	fmt.Println(w.tag)
	select {}
}

func network(t *testing.T, machines int) *Network {
	t.Helper()
	return networkIn(t, t.TempDir(), machines)
}

func networkIn(t *testing.T, dir string, machines int) *Network {
	t.Helper()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	w, err := New(book, machines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		gone(t, w.tag)
	})
	return w
}

// gone waits until a network is completely removed.
func gone(t *testing.T, tag string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(where, tag+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = net.InterfaceByName(tag)
		if len(left) == 0 && err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v; the link %s here: %v", left, tag, err == nil)
		}
	}
}

// echo runs an echo server on a machine until the test ends.
func echo(t *testing.T, m *Machine) (address string) {
	t.Helper()
	l, err := m.Listen(t.Context(), m.Address.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func hello(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestMachinesReachEachOtherAndNothingElse(t *testing.T) {
	w := network(t, 3)
	address := echo(t, w.Machines[0])
	for _, m := range w.Machines {
		c, err := m.Dial(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if from := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); from != m.Address {
			t.Errorf("%s comes from %v, not %v", m.Name, from, m.Address)
		}
		hello(t, c)
		c.Close()
	}
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if c, err := w.Machines[1].Dial(t.Context(), here.Addr().String()); err == nil {
		c.Close()
		t.Error("a machine reaches the loopback of here")
	}
}

func TestHereIsOnTheNetworkToo(t *testing.T) {
	w := network(t, 1)
	own, err := w.Here()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", echo(t, w.Machines[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if from := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); from != own {
		t.Errorf("comes from %v, not %v", from, own)
	}
	hello(t, c)
}

// A run may make one network after another, each with the caller on it.
func TestHereAgain(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range 3 {
		w, err := New(book, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Here()
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACommandRunsAtItsMachine(t *testing.T) {
	w := network(t, 1)
	out, err := w.Machines[0].Command(t.Context(), "readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	var there string
	err = w.Machines[0].Do(func() (err error) {
		there, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if got := strings.TrimSpace(string(out)); err != nil || got != there || got == here {
		t.Errorf("it runs in %s; the machine is %s, here is %s (%v)", got, there, here, err)
	}
}

func TestACutLinkLosesWhatIsSentAndAMendedOneDoesNot(t *testing.T) {
	w := network(t, 2)
	address := echo(t, w.Machines[0])
	c, err := w.Machines[1].Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello(t, c)
	if err := w.Machines[0].Cut(); err != nil {
		t.Fatal(err)
	}
	// TCP sends its first packet at once, and repeats it after one and three seconds.
	unreached, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if c, err := w.Machines[1].Dial(unreached, address); err == nil {
		c.Close()
		t.Error("a machine that was cut off is reached")
	}
	if err := w.Machines[0].Mend(); err != nil {
		t.Fatal(err)
	}
	hello(t, c) // the old connection has not noticed the cut
}

func TestBounds(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	for _, n := range []int{-1, 0, MaxMachines + 1} {
		if w, err := New(book, n); err == nil {
			w.Close()
			t.Errorf("a network of %d machines", n)
		}
	}
}

func TestTheNextFreeNetworkIsTaken(t *testing.T) {
	prefix := func(text string) netip.Prefix { return netip.MustParsePrefix(text) }
	for _, test := range []struct {
		from uint32
		used []string
		want string
	}{
		{0, nil, "198.18.0.0/24"},
		{257, []string{"127.0.0.1/8", "::1/128"}, "198.19.1.0/24"},
		{0xabcd_ef05, nil, "198.19.5.0/24"},
		{5, []string{"198.18.5.65/24"}, "198.18.6.0/24"},
		{5, []string{"198.18.4.1/22"}, "198.18.8.0/24"},
		{511, []string{"198.19.255.65/24", "198.18.0.65/24"}, "198.18.1.0/24"},
	} {
		var used []netip.Prefix
		for _, u := range test.used {
			used = append(used, prefix(u))
		}
		if got, err := choose(test.from, used); err != nil || got != prefix(test.want) {
			t.Errorf("from %d beside %v: %v, %v; want %s", test.from, test.used, got, err, test.want)
		}
	}
	if p, err := choose(7, []netip.Prefix{prefix("198.18.0.1/15")}); err == nil {
		t.Errorf("%v is taken, and all are in use", p)
	}
}

// Two runs whose folders give the same first network can run at the same time.
func TestTwoNetworksHereShareNoAddress(t *testing.T) {
	begins := func(dir string) uint32 {
		h := fnv.New32a()
		h.Write([]byte(dir))
		return h.Sum32() % networks
	}
	dir := t.TempDir()
	first, second := filepath.Join(dir, "0"), ""
	for i := 1; second == "" || begins(second) != begins(first); i++ {
		second = filepath.Join(dir, strconv.Itoa(i))
	}
	seen := map[netip.Prefix]bool{}
	for _, run := range []string{first, second} {
		w := networkIn(t, run, 1)
		if seen[w.prefix] {
			t.Fatalf("%v twice", w.prefix)
		}
		seen[w.prefix] = true
		if _, err := w.Here(); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", echo(t, w.Machines[0]))
		if err != nil {
			t.Fatal(err)
		}
		hello(t, c)
		c.Close()
	}
}

// If another network has taken a network's addresses meanwhile, Here returns an error.
func TestHereRefusesAddressesInUse(t *testing.T) {
	one, other := network(t, 1), network(t, 1)
	other.prefix = one.prefix
	if _, err := one.Here(); err != nil {
		t.Fatal(err)
	}
	if a, err := other.Here(); err == nil {
		t.Errorf("%v is here twice", a)
	}
}

// A killed run leaves a network behind, and the next run removes it.
func TestAKilledRunsNetworkIsTakenAway(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(own)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	tag := strings.TrimSpace(line)
	if left, _ := filepath.Glob(filepath.Join(where, tag+"-*")); len(left) != 2 {
		t.Fatalf("the killed run left %v", left)
	}
	if err := ledger.Recover(dir); err != nil {
		t.Fatal(err)
	}
	gone(t, tag)
}

// TestRouter: the router masquerades, publishes a port, and drops what its machines send each other.
func TestRouter(t *testing.T) {
	w := network(t, 2)
	router, err := w.Router()
	if err != nil {
		t.Fatal(err)
	}
	client, server := w.Machines[0], w.Machines[1]
	l, err := server.Listen(t.Context(), server.Address.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(router.Masquerade(), router.Publish(8080, l.Addr().(*net.TCPAddr).AddrPort())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, netip.AddrPortFrom(router.Address, 8080).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if from := s.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); from != router.Address {
		t.Errorf("the server sees %v, want the router, %v", from, router.Address)
	}
	if err := router.Drop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := client.Dial(ctx, l.Addr().String()); err == nil {
		c.Close()
		t.Error("a packet passes that is to be dropped")
	}
	if err := router.Undrop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	direct, err := client.Dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	direct.Close()
}

// TestPassToRules: a masquerading router also gives its address to connections between machines of the bridge.
func TestPassToRules(t *testing.T) {
	w := network(t, 2)
	router, err := w.Router()
	if err != nil {
		t.Fatal(err)
	}
	passes, err := router.PassToRules()
	if err := errors.Join(err, router.Masquerade()); err != nil {
		t.Fatal(err)
	}
	client, server := w.Machines[0], w.Machines[1]
	l, err := server.Listen(t.Context(), server.Address.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := client.Address
	if passes {
		want = router.Address
	}
	if from := s.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); from != want {
		t.Errorf("the server sees %v, want %v (packets pass the rules: %v)", from, want, passes)
	}
	// Bytes pass in both directions.
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		if _, err := way[0].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := way[1].SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
}
