package guest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"penstock/lab/guest"
	"penstock/lab/ledger"
)

// The tests of opening files and of residency pass on the guest's kernels, which are earlier than the test machines'.
func TestEarlierKernel(t *testing.T) { onKernels(t, testEarlierKernel) }

func testEarlierKernel(t *testing.T, kernel string) {
	for _, p := range []struct {
		name, skipped string
		least         int
	}{
		// The skipped tests start themselves again, which takes minutes on emulated processors. The unit tests of
		// both packages, in make test, include them.
		{"kernel", "TestWithoutTheCalls", 7},
		{"blockfile", "TestWithoutNewerCalls", 15},
	} {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			book, err := ledger.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := book.Close(); err != nil {
					t.Error(err)
				}
			}()
			program := filepath.Join(dir, "tests")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "./../../node/"+p.name)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), bootTime)
			defer cancel()
			output, err := guest.Run(ctx, guest.Options{Book: book, Dir: dir, Kernel: kernel, Program: program,
				Args: []string{"-test.v", "-test.timeout=14m", "-test.skip=" + p.skipped}})
			passed := regexp.MustCompile(`(?m)^--- PASS: `).FindAllString(output, -1)
			if err != nil || len(passed) < p.least {
				t.Errorf("%d tests passed, want at least %d: %v", len(passed), p.least, err)
			}
			t.Logf("the guest has printed:\n%s", output)
		})
	}
}
