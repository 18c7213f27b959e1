package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// StateFile is the name of the file in a folder that records the changes to the folder.
const StateFile = "penstock-install.json"

// text is a piece of a file. In JSON it is a string if it is valid UTF-8.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return readable(string(t))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(t))})
}

func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
		return nil
	}
	var coded struct {
		Base64 string `json:"base64"`
	}
	if err := json.Unmarshal(data, &coded); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(coded.Base64)
	*t = text(raw)
	return err
}

// state is the content of a folder's state file. The state file is written before the first file is
// changed and after the last, and is deleted once the folder is restored. So a run after an
// interruption knows every form that a file may have.
type state struct {
	Version int `json:"version"`
	// Done is false while files are being written.
	Done  bool       `json:"done"`
	Files []fileDone `json:"files"`
	// AgentJar and Socket are the options of the last run.
	AgentJar string `json:"agent_jar,omitempty"`
	Socket   string `json:"socket,omitempty"`
	// DiskBandwidth is the bandwidth that is offered to YARN; empty if no bandwidth is offered.
	DiskBandwidth string `json:"disk_bandwidth,omitempty"`
	// LeastJava is the oldest Java that loads the agent; 0 stands for the first that has Unix sockets.
	LeastJava int `json:"least_java,omitempty"`
	// Made lists the folders that penstock install has made.
	Made []string `json:"made,omitempty"`
}

// fileDone records the changes to one file.
type fileDone struct {
	Path    string `json:"path"`    // relative to the folder
	Existed bool   `json:"existed"` // whether the file existed before the first change
	Before  string `json:"before"`  // digest of the original file
	Forms   []form `json:"forms"`   // the forms that the file may have, the newest first
}

// form is a file's form after edits.
type form struct {
	After string `json:"after"` // digest
	Edits []edit `json:"edits"`
}

const stateVersion = 1

func digest(t []byte) string {
	sum := sha256.Sum256(t)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readState returns nil if there is no state file.
func readState(dir string) (*state, error) {
	name := filepath.Join(dir, StateFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := new(state)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s cannot be read, so the changes made to this folder are not known: %w (restore the folder's files from a backup, then delete it)", name, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s has version %d, but this penstock knows version %d: use the penstock that wrote it", name, s.Version, stateVersion)
	}
	for _, f := range s.Files {
		if !filepath.IsLocal(f.Path) {
			return nil, fmt.Errorf("%s names %s, which is outside the folder", name, f.Path)
		}
	}
	return s, nil
}

// readable encodes v as JSON and leaves < and > as they are, because people read the file.
func readable(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func (s *state) encode() []byte {
	data, err := readable(s)
	if err != nil {
		panic(err) // impossible: v has only plain values
	}
	return data
}

func (s *state) file(path string) *fileDone {
	if s == nil {
		return nil
	}
	for i := range s.Files {
		if s.Files[i].Path == path {
			return &s.Files[i]
		}
	}
	return nil
}

// base returns the file as it would be without Penstock, that is, its present text with our edits
// undone. It also returns these edits.
func (d *fileDone) base(f format, now file, done bool, include func(string) ([]byte, error)) (file, []edit, error) {
	if d == nil || !now.exists {
		return now, nil, nil // our lines are gone with the file
	}
	if d.Existed && digest(now.text) == d.Before {
		return now, nil, nil
	}
	var first error
	for _, form := range d.Forms {
		back, err := undoAll(f, now.text, form.Edits, include)
		if err == nil {
			now.text = back
			now.exists = d.Existed || len(back) > 0
			return now, form.Edits, nil
		}
		if first == nil {
			first = err
		}
	}
	if !done && !d.touched(now.text) {
		return now, nil, nil // the run was interrupted before it changed this file
	}
	return now, nil, first
}

// touched reports whether the text contains any of our edits.
func (d *fileDone) touched(t []byte) bool {
	for _, form := range d.Forms {
		for _, e := range form.Edits {
			if !e.Soft && len(e.New) > 0 && containsText(t, string(e.New)) {
				return true
			}
		}
	}
	return false
}
