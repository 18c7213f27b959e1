package guest

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// entry is a file, folder or device node of the guest.
type entry struct {
	name    string // path without the slash at the beginning
	mode    uint32 // kind and permissions
	content []byte
	device  uint64 // number of the device, for a device node
}

// makeInitramfs writes the archive of the guest's first files: the program, the modules, and the
// folders of the mounts.
func makeInitramfs(path, image string, o Options) error {
	if err := static(o.Program); err != nil {
		return err
	}
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return err
	}
	entries := []entry{{name: "init", mode: unix.S_IFREG | 0o755, content: program}}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "mnt", modulesDir} {
		entries = append(entries, entry{name: dir, mode: unix.S_IFDIR | 0o755})
	}
	// The kernel opens the console before the first process can mount /dev.
	entries = append(entries, entry{name: "dev/console", mode: unix.S_IFCHR | 0o600, device: unix.Mkdev(5, 1)})
	version := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	modules, err := findModules(filepath.Join(o.Kernel, "lib/modules", version), append(driverModules, o.Modules...))
	if err != nil {
		return err
	}
	for i, m := range modules {
		content, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		entries = append(entries, entry{name: fmt.Sprintf("%s/%03d-%s", modulesDir, i, filepath.Base(m)), mode: unix.S_IFREG | 0o644, content: content})
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for i, e := range append(entries, entry{name: "TRAILER!!!"}) {
		if _, err := out.Write(e.encode(i)); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(out.Flush(), file.Close())
}

// encode returns the entry in cpio's newc format: a header of numbers with eight hexadecimal digits,
// the name and the content, each of the last two filled to a multiple of four bytes.
func (e entry) encode(inode int) []byte {
	const owner, group, time, links, checksum = 0, 0, 0, 1, 0
	var b bytes.Buffer
	fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", inode+1, e.mode, owner, group, links, time, len(e.content),
		0, 0, unix.Major(e.device), unix.Minor(e.device), len(e.name)+1, checksum)
	b.WriteString(e.name)
	b.WriteByte(0)
	fill := func() { b.Write(make([]byte, -b.Len()&3)) }
	fill()
	b.Write(e.content)
	fill()
	return b.Bytes()
}

// findModules returns the files of the named modules and of the modules that these need, in an order in which
// they can be loaded. It leaves out modules that are built into the kernel, because these have no file.
func findModules(dir string, names []string) (files []string, err error) {
	at := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok && err == nil {
			at[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the guest's modules: %w", err)
	}
	builtIn, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("the guest's modules: %w", err)
	}
	done := map[string]bool{}
	for line := range strings.Lines(string(builtIn)) {
		done[moduleName(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko"))] = true
	}
	var add func(string) error
	add = func(name string) error {
		name = moduleName(name)
		if done[name] {
			return nil
		}
		done[name] = true
		file := at[name]
		if file == "" {
			return fmt.Errorf("the guest's kernel in %s has no module %s", dir, name)
		}
		needed, err := dependencies(file)
		if err != nil {
			return err
		}
		for _, n := range needed {
			if err := add(n); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// moduleName returns the name that the kernel gives a module. The name of its file may have dashes instead
// of underscores.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// dependencies returns the modules that a module needs. It reads them from the module itself, because the
// table of all dependencies is made only when a kernel is installed.
func dependencies(module string) ([]string, error) {
	file, err := elf.Open(module)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", module, err)
	}
	defer file.Close()
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module %s has no description", module)
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", module, err)
	}
	for _, line := range strings.Split(string(text), "\x00") {
		if names, ok := strings.CutPrefix(line, "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}
