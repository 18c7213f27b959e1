package sharedfs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"

	"penstock/lab/experiment/claims"
	"penstock/lab/hadoop"
	"penstock/lab/pagerank"
	"penstock/lab/storage"
)

// The paper's PageRank has a quarter of TeraSort's input: 1 GB and 4 GB.
const (
	rankPart   = 4
	minRankMiB = 16
	graphSeed  = 1
	// rankPrefix is the beginning of the names of PageRank's ways.
	rankPrefix = "pagerank-"
)

// rankMiB returns the size of PageRank's input, in MiB.
func (s Setup) rankMiB() int { return max(minRankMiB, s.largest()/rankPart) }

// rankWays are those of the ways in which PageRank runs: the paper compares local disks with the file system, and the
// last one shows what the merge in place contributes.
func rankWays() (all []way) {
	for _, w := range ways {
		if slices.Contains([]string{"local-any", "local-near", "shared-near", "stock-near"}, w.name) {
			w.name, w.about, w.rank = rankPrefix+w.name, "PageRank, "+w.about, true
			all = append(all, w)
		}
	}
	return all
}

// rank writes a graph, ranks its pages and checks the ranks. The disks are cold for the first iteration.
func (m *machine) rank(ctx context.Context, size int) (Job, error) {
	const input = "graph"
	graph := pagerank.New(graphSeed, int64(size)*mib)
	if err := m.writeGraph(ctx, input, graph); err != nil {
		return Job{}, fmt.Errorf("write the graph: %w", err)
	}
	folders := []string{input}
	var jobs []hadoop.Job
	for i := range m.setup.Iterations {
		output := fmt.Sprintf("ranks%d", i+1)
		jobs = append(jobs, hadoop.Job{Kind: hadoop.PageRank, Input: "/" + folders[i], Output: "/" + output, Reduces: m.setup.Reduces, Queue: queue})
		folders = append(folders, output)
	}
	j, err := m.measure(ctx, size, jobs...)
	if err != nil {
		return Job{}, err
	}
	for range m.setup.Iterations {
		graph.Iterate()
	}
	if err := m.cat(ctx, folders[len(folders)-1], graph.Check); err != nil {
		return Job{}, err
	}
	return j, m.remove(ctx, folders...)
}

// writeGraph writes a graph through the mounts of all hosts, as many files as TeraSort's input has.
func (m *machine) writeGraph(ctx context.Context, dir string, graph *pagerank.Graph) error {
	m.Spec.Progress("writing PageRank's graph")
	folder := filepath.Join(m.root(), dir)
	if _, err := m.hosts[0].Run(ctx, "mkdir", folder); err != nil {
		return err
	}
	for i := range m.setup.Files {
		err := writeOn(ctx, m.hosts[i%len(m.hosts)], filepath.Join(folder, fmt.Sprintf("part-%05d", i)), func(w io.Writer) error {
			return graph.Write(w, i, m.setup.Files)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeOn writes a file on a host. The function write writes the contents.
func writeOn(ctx context.Context, h *storage.Host, path string, write func(io.Writer) error) error {
	argv := h.Args("sh", "-c", `cat >"$0"`, path)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	out := bufio.NewWriter(in)
	if err = errors.Join(write(out), out.Flush(), in.Close(), cmd.Wait()); err != nil {
		err = fmt.Errorf("write %s on %s: %w: %s", path, h.Name, err, &problems)
	}
	return err
}

// cat calls a function with the contents of a folder's files, read on the last host.
func (m *machine) cat(ctx context.Context, dir string, read func(io.Reader) error) error {
	h := m.hosts[len(m.hosts)-1]
	argv := h.Args("sh", "-c", "cat "+filepath.Join(m.root(), dir, "part-*"))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = read(out)
	out.Close()
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("read %s on %s: %w: %s", dir, h.Name, err, &problems)
	}
	return nil
}

// remove removes folders.
func (m *machine) remove(ctx context.Context, dirs ...string) error {
	argv := []string{"rm", "-r"}
	for _, dir := range dirs {
		argv = append(argv, filepath.Join(m.root(), dir))
	}
	_, err := m.hosts[0].Run(ctx, argv...)
	return err
}

// rankClaims returns the published figures of PageRank.
func (r Result) rankClaims() (all []claims.Claim) {
	size := r.Setup.rankMiB()
	for _, fs := range fileSystems {
		name := fmt.Sprintf("%s, PageRank of %d MiB, ", fs, size)
		near, stock := fs+"-"+rankPrefix+"shared-near", fs+"-"+rankPrefix+"stock-near"
		all = claims.Add(all, r.runTimes(name, fs, rankWays(), size)...)
		all = claims.Add(all, claims.Of(name+"in place: run time / with Hadoop's shuffle", "ratio", r.Pairs(near, stock, ratio(size, seconds))...).From(paper))
		all = claims.Add(all, claims.Of(name+"in place: run time / on local disks", "ratio", r.Pairs(near, fs+"-"+rankPrefix+"local-near", ratio(size, seconds))...).From(paper))
		all = claims.Add(all, r.inPlace(name, near, stock, size)...)
	}
	return all
}
