package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// PortFile returns the path of the file that names the loopback port of the daemon with a socket.
func PortFile(socket string) string { return socket + ".port" }

// netNamespace is the link that identifies the network namespace of this process.
const netNamespace = "/proc/self/ns/net"

// Announce writes the file that names the daemon's loopback port to agents, beside its Unix socket. The
// listener must listen already. The file is one line: the address, the network namespace in which it is
// valid, and the daemon's process id. Agents trust the file because of its owner and that of its folder, so others may not write
// either. withdraw removes the file, unless another daemon has replaced it.
func Announce(socket string, l net.Addr) (withdraw func() error, err error) {
	file := PortFile(socket)
	where, err := os.Readlink(netNamespace)
	if err != nil {
		return nil, fmt.Errorf("port file %s: %w", file, err)
	}
	text := fmt.Sprintf("%v %s %d\n", l, where, os.Getpid())
	unlock, err := lockStart(socket + ".lock")
	if err != nil {
		return nil, fmt.Errorf("port file %s: %w", file, err)
	}
	defer unlock()
	if err := replaceFile(file, text); err != nil {
		return nil, fmt.Errorf("port file %s: %w", file, err)
	}
	return func() error {
		unlock, err := lockStart(socket + ".lock")
		if err != nil {
			return err
		}
		defer unlock()
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			return nil // another daemon's, or removed by somebody
		}
		return os.Remove(file)
	}, nil
}

// replaceFile writes a file that everybody may read, in one step: a reader sees the former text or the
// new one. The caller holds the lock.
func replaceFile(path, text string) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next))
	}
	return err
}
