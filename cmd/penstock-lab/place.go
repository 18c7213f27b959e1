package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"penstock/settings/plain"
)

// place holds the paths of a measurement: of the programs that it uses and of the folders for its
// files.
type place struct{ binary, agentJar, cache, runDir string }

func (p *place) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.agentJar, "agent-jar", "", "penstock-agent.jar (default: beside this program)")
	flags.StringVar(&p.cache, "cache-dir", ".cache", "`FOLDER` for downloads, kept between runs")
	flags.StringVar(&p.runDir, "run-dir", "", "`FOLDER` of the run (default: a new one in ./run)")
}

// resolve fills in the defaults, makes the paths absolute and checks that the programs exist.
func (p *place) resolve() (err error) {
	if p.binary, err = penstockBinary(); err != nil {
		return err
	}
	if p.agentJar == "" {
		p.agentJar = filepath.Join(filepath.Dir(p.binary), "penstock-agent.jar")
	}
	for _, path := range []*string{&p.agentJar, &p.cache} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if _, err := os.Stat(p.agentJar); err != nil {
		return fmt.Errorf("the agent is missing: %w (run make build, or name it with --agent-jar)", plain.File(err))
	}
	return nil
}
