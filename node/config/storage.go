package config

import (
	"fmt"
	"path/filepath"
)

// Storage describes the server of a parallel file system on this machine, at whose disk tasks take
// turns.
type Storage struct {
	// Directory is where the server keeps its data: a GlusterFS brick, or the disk of a MooseFS chunk
	// server. Empty: no server runs here, and tasks of this machine take turns at other servers only.
	Directory string `yaml:"directory"`
	// Names are further names that layouts of the file system use for this machine. Its host name, its
	// name for the broker and the addresses of its interfaces are known without them.
	Names []string `yaml:"names"`
}

// maxNames is the maximum number of Storage.Names.
const maxNames = 64

// validateStorage adds the mistakes that it finds to those in doc.
func (n *Node) validateStorage() {
	s := n.Storage
	if s == nil {
		return
	}
	if s.Directory != "" && !filepath.IsAbs(s.Directory) {
		n.doc.Add("storage: ", fmt.Errorf("directory %q: give an absolute path", s.Directory), "storage", "directory")
	}
	if len(s.Names) > maxNames {
		n.doc.Add("storage: ", fmt.Errorf("%d names: use at most %d", len(s.Names), maxNames), "storage", "names")
	}
}
