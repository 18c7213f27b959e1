package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/guest"
	"penstock/lab/ledger"
	"penstock/node/control/freezer"
)

// inside are the tests that run in the guest.
var inside = []testing.InternalTest{
	{Name: "LimitHoldsDirectReads", F: limitHoldsDirectReads},
	{Name: "LimitHoldsBufferedWrites", F: limitHoldsBufferedWrites},
	{Name: "ControllerIsTurnedOnAndOff", F: controllerIsTurnedOnAndOff},
	{Name: "ThreadedCgroupsAreRefused", F: threadedCgroupsAreRefused},
	{Name: "CrashIsPutBack", F: crashIsPutBack},
	{Name: "WeightsWithoutEffectAreRefused", F: weightsWithoutEffectAreRefused},
	{Name: "WeightsOrderReaders", F: weightsOrderReaders},
	{Name: "VolumesOfOneDisk", F: volumesOfOneDisk},
	{Name: "FreezerHoldsToItsDuty", F: freezerHoldsToItsDuty},
	{Name: "FrozenProcessesAreReleased", F: frozenProcessesAreReleased},
}

// insideVariable makes this program run the tests of the list inside.
const insideVariable = "PENSTOCK_TEST_INSIDE"

func TestMain(m *testing.M) {
	freezer.RunIfHelper()
	guest.RunIfInside(guest.Tests(insideVariable))
	if os.Getenv(insideVariable) != "" {
		testing.Main(func(_, _ string) (bool, error) { return true, nil }, inside, nil, nil)
	}
	runIfWorker()
	os.Exit(m.Run())
}

const (
	mib = 1 << 20
	// diskRate is the bandwidth of the guest's first disk, in bytes per second. It is several times the
	// limits in the tests, but low enough that an emulated processor can keep the disk busy.
	diskRate = 24 * mib
	diskSize = 256 * mib
	// Both volumes of the second disk have this size.
	volumeSize = 64 * mib
	bootTime   = 15 * time.Minute // longest time for the guest, on a machine that is busy with other work
)

// kernels are the kernels of the guest: Debian 12's (6.1) and Debian 11's (5.10).
var kernels = []struct {
	name  string
	fetch func(*testing.T) (dir string, err error)
}{
	{"debian 12", func(*testing.T) (string, error) { return guest.Kernel("../../.cache") }},
	{"debian 11", func(t *testing.T) (string, error) { return guest.FetchEarlier(t.Context(), "../../.cache", t.Logf) }},
}

// onKernels runs a test with the folder of each kernel.
func onKernels(t *testing.T, test func(t *testing.T, kernel string)) {
	for _, k := range kernels {
		t.Run(k.name, func(t *testing.T) {
			kernel, err := k.fetch(t)
			if err != nil {
				t.Fatal(err)
			}
			test(t, kernel)
		})
	}
}

func TestGuest(t *testing.T) { onKernels(t, testGuest) }

func testGuest(t *testing.T, kernel string) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	images := make([]string, 2)
	for i := range images {
		images[i] = filepath.Join(dir, fmt.Sprintf("disk%d", i))
		if err := os.WriteFile(images[i], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(images[i], diskSize); err != nil {
			t.Fatal(err)
		}
	}
	// The guest has no program that makes file systems.
	format := func(image string, offset, size int) {
		t.Helper()
		cmd := exec.Command("mkfs.ext4", "-q", "-F", "-E", fmt.Sprintf("offset=%d,lazy_itable_init=0,nodiscard", offset), image, fmt.Sprintf("%dk", size>>10))
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	format(images[0], 0, diskSize)
	format(images[1], 0, volumeSize)
	format(images[1], volumeSize, volumeSize)

	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, err := guest.Run(ctx, guest.Options{Book: book, Dir: dir, Kernel: kernel, Program: program,
		Args: []string{"-test.v", "-test.timeout=14m"}, Modules: []string{"bfq", "dm_mod"},
		Disks: []guest.Drive{{Image: images[0], BytesPerSecond: diskRate}, {Image: images[1]}}})
	if err != nil {
		t.Errorf("%v", err)
	}
	t.Logf("the guest has printed:\n%s", output)
	for _, test := range inside {
		t.Run(test.Name, func(t *testing.T) {
			if !strings.Contains(output, "--- PASS: "+test.Name+" ") {
				t.Error("the guest has not printed that this test has passed")
			}
		})
	}
}
