package overhead

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"penstock/lab/client"
)

// The load is compiled when the measurement starts, because no installed jar contains it.
//
//go:embed java/OverheadClient.java
var clientSource []byte

// startClient compiles and starts the JVM that reads, writes and runs jobs, one command at a time.
// The JVM is bound to a CPU if the setup says so. Its own files and the jobs' intermediate files
// are on the last disk.
func (m *Machine) startClient(ctx context.Context) error {
	if err := client.CompileSources(ctx, m.Lib, m.Path("load"), map[string][]byte{"OverheadClient.java": clientSource}); err != nil {
		return err
	}
	local := m.Disks[2].Mount()
	o := client.Options{Book: m.Book, Lib: m.Lib, Classes: m.Path("load"), Conf: m.Hadoop.ClientConfDir(), Temp: local, Dir: local,
		Log: m.Path("client.log"), Heap: "1500m", Main: []string{"OverheadClient", local}}
	if cpu := m.setup.ClientCPU; cpu != "" {
		o.Under = []string{"taskset", "-c", cpu}
	}
	var err error
	m.client, err = client.Start(o)
	return err
}

// command sends the client a command and waits for its answer. After an interrupted command, the
// client accepts no other command and can only be stopped.
func (m *Machine) command(ctx context.Context, operation, args string) (took time.Duration, bytes int64, err error) {
	answer, err := m.client.Ask(ctx, operation, args)
	if err == nil {
		took, bytes, err = parseAnswer(answer)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s %s: %w (the client's messages are in %s)", operation, args, err, m.Path("client.log"))
	}
	return took, bytes, err
}

// parseAnswer reads "NANOSECONDS BYTES".
func parseAnswer(answer string) (took time.Duration, bytes int64, err error) {
	if n, err := fmt.Sscanf(answer+"\n", "%d %d\n", &took, &bytes); err != nil || n != 2 || took <= 0 || bytes < 0 {
		return 0, 0, fmt.Errorf("the client's answer %q is not a time and a number of bytes", answer)
	}
	return took, bytes, nil
}
