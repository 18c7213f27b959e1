package tidy

import (
	"os/exec"
	"strings"
	"testing"
)

// laboratoryOnly are packages that the product must not link: the laboratory, and libraries that
// docs/dependencies.md lists for the laboratory only.
var laboratoryOnly = []string{
	"penstock/lab", "penstock/e2e", "github.com/hanwen/go-fuse", "gonum.org/v1/plot",
	"pgregory.net/rapid",
}

// The daemon runs as root, so its binary contains nothing of the laboratory: no FUSE, plotting,
// launcher or load generator.
func TestTheProductHoldsNoLaboratory(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/penstock")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("go list names only %d packages: the rule would check nothing", len(packages))
	}
	for _, p := range packages {
		for _, banned := range laboratoryOnly {
			if p == banned || strings.HasPrefix(p, banned+"/") {
				t.Errorf("cmd/penstock links %s.\nTo fix it: move the code that needs it to lab/ and its command to cmd/penstock-lab.", p)
			}
		}
	}
}
