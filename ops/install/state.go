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

// StateFile is where a folder remembers what was done to it.
const StateFile = "penstock-install.json"

// text is a piece of a file. In JSON it is a string if that can hold it.
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

// state is what a folder's state file says. It is written before the first file is
// changed and after the last, and deleted when the folder is as it was, so that
// whoever comes after an interruption knows every form that a file may be in.
type state struct {
	Version int `json:"version"`
	// Done is false while files are being written.
	Done  bool       `json:"done"`
	Files []fileDone `json:"files"`
	// AgentJar and Socket are the options of the last run.
	AgentJar string `json:"agent_jar,omitempty"`
	Socket   string `json:"socket,omitempty"`
	// DiskBandwidth is what is offered to YARN; empty: nothing.
	DiskBandwidth string `json:"disk_bandwidth,omitempty"`
	// Made are folders that were not there.
	Made []string `json:"made,omitempty"`
}

// fileDone is what was done to one file.
type fileDone struct {
	Path    string `json:"path"`    // from the folder
	Existed bool   `json:"existed"` // before we came
	Before  string `json:"before"`  // digest of what it was
	Forms   []form `json:"forms"`   // what it is now, or may be: the newest first
}

// form is one outcome of edits.
type form struct {
	After string `json:"after"` // digest
	Edits []edit `json:"edits"`
}

const stateVersion = 1

func digest(t []byte) string {
	sum := sha256.Sum256(t)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readState gives nil where there is none.
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
		return nil, fmt.Errorf("%s cannot be read, so that nobody knows what was done: %w (put the folder's files back from a backup, then delete it)", name, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s is of version %d, this penstock knows %d: use the one that wrote it", name, s.Version, stateVersion)
	}
	for _, f := range s.Files {
		if !filepath.IsLocal(f.Path) {
			return nil, fmt.Errorf("%s names %s, which is outside of the folder", name, f.Path)
		}
	}
	return s, nil
}

// readable leaves < and > as they are: people read this file.
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
		panic(err) // plain values only
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

// base is what the file would be without us: its text now with our edits taken
// back, which it gives, too.
func (d *fileDone) base(f format, now file, done bool, include func(string) ([]byte, error)) (file, []edit, error) {
	if d == nil || !now.exists {
		return now, nil, nil // with the file our lines went
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
		return now, nil, nil // it had not been its turn when we were interrupted
	}
	return now, nil, first
}

// touched reports whether anything of ours is in the text.
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
