package broker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"penstock/lab/ledger"
)

// source is a generator's process and the pipes to it.
type source struct {
	cmd    *exec.Cmd
	exited <-chan struct{}
	in     io.WriteCloser
	out    *bufio.Reader
}

func startSource(book *ledger.Ledger, l Load) (*source, error) {
	own, err := os.Executable() // the generator is a hidden command of the laboratory
	if err != nil {
		return nil, err
	}
	s := &source{cmd: exec.Command(own, "bench", "broker", "nodes")}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if s.exited, err = book.Spawn(s.cmd); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(s.in).Encode(l); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// look asks the generator for its figures.
func (s *source) look() (l Look, err error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return l, fmt.Errorf("a generator: %w", err)
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return l, fmt.Errorf("a generator: %w", err)
	}
	return l, json.Unmarshal(line, &l)
}

func (s *source) stop() error {
	s.in.Close()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	return nil
}
