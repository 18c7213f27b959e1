// Package jre fetches Java runtimes into the project's cache, once: Java 8 and Java 11, on which
// Hadoop 3.3 and 3.4 mostly run, and Java 21. A machine that builds Penstock has Java 17.
//
// The runtimes are Debian's own. Java 11 is in Debian 11 (bullseye), and its programs run on later releases.
// Java 8 and 21 are taken from sid, whose programs need sid's C library, so this library is unpacked beside the
// runtime and written into the java program (patchelf). Package debian downloads and unpacks them.
package jre

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"penstock/lab/debian"
)

// release says where Debian has a version of Java.
type release struct {
	suite string // of Debian
	home  string // below /usr/lib/jvm/java-*
	libc  bool   // needs the C library of the suite
}

var releases = map[int]release{
	8:  {suite: "sid", home: "jre", libc: true},
	11: {suite: "bullseye"},
	21: {suite: "sid", libc: true},
}

// Fetch makes sure that a Java runtime is in the cache, and returns its home, the folder that contains
// bin/java. The version is 8, 11 or 21. If the runtime is not in the cache, Fetch needs a Debian
// machine with apt-get. Two processes may fetch at the same time: the folder
// appears as a whole, by a rename. The folder cannot be moved afterwards.
func Fetch(ctx context.Context, cacheDir string, version int, progress func(format string, args ...any)) (home string, err error) {
	r, ok := releases[version]
	if !ok {
		return "", fmt.Errorf("jre: there is no Java %d to fetch: use 8, 11 or 21", version)
	}
	if progress == nil {
		progress = func(string, ...any) {}
	}
	dir, err := filepath.Abs(filepath.Join(cacheDir, fmt.Sprintf("jre-%d", version)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		progress("Java %d: fetching Debian's packages of %s (60 MB with their lists) into %s, once", version, r.suite, dir)
		begin := time.Now()
		if err := fetch(ctx, r, version, dir); err != nil {
			return "", fmt.Errorf("jre: fetch Java %d: %w", version, err)
		}
		progress("Java %d: fetched in %.0f s", version, time.Since(begin).Seconds())
	}
	if home, err = find(dir, r); err == nil {
		err = check(ctx, home, version)
	}
	if err != nil {
		return "", fmt.Errorf("jre: Java %d in %s does not work: delete the folder to fetch it again: %w", version, dir, err)
	}
	return home, nil
}

// fetch makes the folder dir.
func fetch(ctx context.Context, r release, version int, dir string) error {
	return debian.Make(ctx, dir, r.suite, func(p *debian.Packages, made string) error {
		if err := p.Unpack(ctx, fmt.Sprintf("openjdk-%d-jre-headless/%s", version, r.suite), made); err != nil {
			return err
		}
		if err := linkWithin(made); err != nil || !r.libc {
			return err
		}
		if err := p.Unpack(ctx, "libc6/"+r.suite, filepath.Join(made, libcFolder)); err != nil {
			return err
		}
		patchelf, err := p.Program(ctx, "patchelf")
		if err != nil {
			return err
		}
		return useLibc(ctx, patchelf, made, dir, r)
	})
}

// find returns the home of the runtime that is unpacked in dir.
func find(dir string, r release) (string, error) {
	return one(filepath.Join(dir, "usr", "lib", "jvm", "java-*-openjdk-*", r.home), "bin/java")
}

// one returns the path that matches the pattern, contains the file and is not reached by a link. There must be exactly one.
func one(pattern, file string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(pattern, file))
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	path := ""
	for _, p := range paths {
		if p, err = filepath.EvalSymlinks(strings.TrimSuffix(p, "/"+file)); err != nil {
			return "", err
		}
		found[p], path = true, p
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d folders match %s and have %s, expected one", len(found), pattern, file)
	}
	return path, nil
}

// check fails unless the runtime starts and has the given version.
func check(ctx context.Context, home string, version int) error {
	java := filepath.Join(home, "bin", "java")
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -version: %w: %s", java, err, out)
	}
	if got, err := major(string(out)); err != nil || got != version {
		return fmt.Errorf("%s is of another version (%d, %v): %s", java, got, err, out)
	}
	return nil
}

var versionLine = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// major returns the version in the output of java -version: 8 for "1.8.0_402", 11 for "11.0.24".
func major(output string) (int, error) {
	m := versionLine.FindStringSubmatch(output)
	if m == nil {
		return 0, errors.New("no version in the output")
	}
	return strconv.Atoi(m[1])
}

// linkWithin changes symbolic links to absolute paths, such as /etc/java-8-openjdk/security, so that they lead to
// the files of the unpacked package. A link to a file of another package is not changed.
func linkWithin(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Type() != os.ModeSymlink {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(target) {
			return err
		}
		within := filepath.Join(root, target)
		if _, err := os.Lstat(within); err != nil {
			return nil
		}
		relative, err := filepath.Rel(filepath.Dir(path), within)
		if err != nil {
			return err
		}
		return errors.Join(os.Remove(path), os.Symlink(relative, path))
	})
}

// libcFolder contains the C library, beside the runtime's folders.
const libcFolder = "libc"

// useLibc makes the java program in the folder made, and its helper that starts other programs, use the C library there.
// All will be in the folder dir. Programs that java starts use the machine's own library, as before.
func useLibc(ctx context.Context, patchelf, made, dir string, r release) error {
	home, err := find(made, r)
	if err != nil {
		return err
	}
	java := filepath.Join(home, "bin", "java")
	out, err := exec.CommandContext(ctx, patchelf, "--print-interpreter", java).Output()
	if err != nil {
		return fmt.Errorf("patchelf --print-interpreter %s: %w", java, err)
	}
	loader := filepath.Base(strings.TrimSpace(string(out)))
	library, err := one(filepath.Join(made, libcFolder, "usr", "lib", "*"), loader)
	if err != nil {
		return err
	}
	jli, err := one(filepath.Join(home, "lib"), "libjli.so")
	if err != nil { // Java 8
		jli, err = one(filepath.Join(home, "lib", "*", "jli"), "libjli.so")
	}
	if err != nil {
		return err
	}
	if jli, err = filepath.Rel(filepath.Dir(java), jli); err != nil {
		return err
	}
	later, err := filepath.Rel(made, library)
	if err != nil {
		return err
	}
	later = filepath.Join(dir, later)
	machine := "/lib/" + filepath.Base(library) // the machine's libraries of other packages
	paths := strings.Join([]string{"$ORIGIN/" + jli, later, machine, "/usr" + machine}, ":")
	for _, program := range []string{java, filepath.Join(home, "lib", "jspawnhelper")} {
		if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
			continue // Java 8 has no jspawnhelper
		}
		out, err = exec.CommandContext(ctx, patchelf, "--set-interpreter", filepath.Join(later, loader),
			"--set-rpath", paths, "--force-rpath", program).CombinedOutput()
		if err != nil {
			return fmt.Errorf("patchelf %s: %w: %s", program, err, out)
		}
	}
	return nil
}
