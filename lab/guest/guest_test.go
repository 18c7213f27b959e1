package guest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each entry of the archive begins at a multiple of four bytes, and its header describes what follows.
func TestEntriesCanBeReadBack(t *testing.T) {
	var archive []byte
	entries := []entry{
		{name: "a", mode: unix.S_IFREG | 0o755, content: []byte("12345")},
		{name: "dev/console", mode: unix.S_IFCHR | 0o600, device: unix.Mkdev(5, 1)},
		{name: "abc", mode: unix.S_IFDIR | 0o755},
		{name: "TRAILER!!!"},
	}
	for i, e := range entries {
		archive = append(archive, e.encode(i)...)
	}
	for _, want := range entries {
		const digits, header = 8, 110
		var field [13]uint32
		for i := range field {
			text := string(archive[6+i*digits : 6+(i+1)*digits])
			if _, err := fmt.Sscanf(text, "%08x", &field[i]); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
		size, nameSize := int(field[6]), int(field[11])
		name := string(archive[header : header+nameSize-1])
		start := (header + nameSize + 3) &^ 3
		content := string(archive[start : start+size])
		if string(archive[:6]) != "070701" || name != want.name || content != string(want.content) || field[1] != want.mode {
			t.Errorf("%q %q %o instead of %+v", name, content, field[1], want)
		}
		if field[9] != unix.Major(want.device) || field[10] != unix.Minor(want.device) {
			t.Errorf("%s: device %d:%d", name, field[9], field[10])
		}
		archive = archive[(start+size+3)&^3:]
	}
	if len(archive) != 0 {
		t.Errorf("%d bytes are left", len(archive))
	}
}

// module writes an object file that names the modules that it needs, as a module of the kernel does.
func module(t *testing.T, path, info string) {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	le := binary.LittleEndian
	const head, section = 64, 64
	b := make([]byte, head)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)  // relocatable
	le.PutUint16(b[18:], 62) // amd64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], uint64(head+len(info)+len(names)))
	le.PutUint16(b[52:], head)
	le.PutUint16(b[58:], section)
	le.PutUint16(b[60:], 3) // sections
	le.PutUint16(b[62:], 2) // the one with the names
	b = append(append(b, info...), names...)
	add := func(name, kind uint32, offset, size int) {
		s := make([]byte, section)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], kind)
		le.PutUint64(s[24:], uint64(offset))
		le.PutUint64(s[32:], uint64(size))
		b = append(b, s...)
	}
	add(0, 0, 0, 0)
	add(1, 1, head, len(info))
	add(10, 3, head+len(info), len(names))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name+".ko") }
	module(t, at("top-one"), "license=GPL\x00depends=middle,ext4\x00")
	module(t, at("middle"), "depends=low_one\x00")
	module(t, at("low-one"), "depends=\x00")
	module(t, at("lost"), "depends=nowhere\x00")
	module(t, at("unused"), "depends=\x00")
	if err := os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/fs/ext4/ext4.ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := findModules(dir, []string{"ext4", "top_one", "low-one"})
	if want := []string{at("low-one"), at("middle"), at("top-one")}; err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := findModules(dir, []string{"lost"}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a module without what it needs: %v", err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	if _, err := Kernel(t.TempDir()); err == nil || !strings.Contains(err.Error(), "scripts/setup") {
		t.Errorf("no kernel: %v", err)
	}
	if err := static("/bin/sh"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("a program with shared libraries: %v", err)
	}
}

func TestTheResultIsALineOfItsOwn(t *testing.T) {
	for line, want := range map[string]string{
		"penstock-guest: exit code 0\r": "0", "penstock-guest: exit code 12": "12", "penstock-guest: exit code": "", "x exit code 0": "",
	} {
		got := ""
		if m := resultLine.FindStringSubmatch(line); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}
