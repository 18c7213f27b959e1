package hadoop

import (
	"bytes"
	"strings"
	"testing"
)

func TestDFSIOReadsWhatItWrote(t *testing.T) {
	for _, job := range []Job{
		{Kind: TestDFSIOWrite, Output: "/io", Maps: 3, FileBytes: 5, Queue: QueueAggressor},
		{Kind: TestDFSIORead, Input: "/io", Maps: 3, FileBytes: 5, Queue: QueueAggressor},
	} {
		class, args, err := job.command()
		if err != nil || !strings.HasSuffix(class, ".TestDFSIO") || strings.Join(args[1:], " ") != "-nrFiles 3 -size 5B" {
			t.Errorf("%s %v %v", class, args, err)
		}
		if job.dfsioDir() != "/io" {
			t.Errorf("%s works in %q", job.Kind, job.dfsioDir())
		}
	}
}

func TestDFSIOFilesAreChecked(t *testing.T) {
	good := make([]byte, 130_001)
	if n, err := checkDFSIO(bytes.NewReader(good)); err != nil || n != 130_001 {
		t.Errorf("%d %v", n, err)
	}
	good[100_000] = 'x'
	if _, err := checkDFSIO(bytes.NewReader(good)); err == nil || !strings.Contains(err.Error(), "byte 100000") {
		t.Errorf("a wrong byte: %v", err)
	}
}
