// Package plain translates system errors into messages for operators.
//
// Go's errors name system calls, types and library internals, and repeat file and address. An
// operator needs the cause, and the file or the address, once. The original error is wrapped, for
// errors.Is.
package plain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Error is a system error in plain words.
type Error struct {
	What  string
	Cause error
}

func (e *Error) Error() string { return e.What }
func (e *Error) Unwrap() error { return e.Cause }

// File returns the error of a file operation as "PATH: cause". Other errors are returned
// unchanged.
func File(err error) error {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return err
	}
	return &Error{p.Path + ": " + fileCause(p.Err), err}
}

func fileCause(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or folder"
	case errors.Is(err, syscall.EISDIR):
		return "it is a folder, and must be a file"
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of this path is a file, not a folder"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("permission denied for user %d", os.Geteuid())
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only"
	case errors.Is(err, syscall.ENOSPC):
		return "the file system is full"
	}
	return err.Error()
}

// Listen translates the error of a failed attempt to listen at an address.
func Listen(address string, err error) error {
	what := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		what = "another program listens there"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		what = "this machine does not have that address"
	case errors.Is(err, fs.ErrPermission):
		what = fmt.Sprintf("user %d may not listen there", os.Geteuid())
	default:
		return Network(address, err)
	}
	return &Error{fmt.Sprintf("listen on %s: %s", address, what), err}
}

// Network returns the error of a request to an address as "ADDRESS: cause", without the names of
// the request and of the system calls.
func Network(address string, err error) error {
	return &Error{address + ": " + NetworkCause(err), err}
}

// NetworkCause returns the cause of a failed request, without the address.
func NetworkCause(err error) string {
	var (
		dns     *net.DNSError
		wrong   *net.AddrError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns) && strings.HasPrefix(dns.Name, "tcp/"): // the name of a port
		return NetworkText("unknown port")
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the host " + dns.Name + " is unknown"
	case errors.As(err, &dns):
		return "the host " + dns.Name + " cannot be looked up: the name server does not answer"
	case errors.As(err, &wrong) && strings.Contains(wrong.Err, "port"):
		return NetworkText(wrong.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return NetworkText("connection refused")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to that host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the other side closed the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	var request *url.Error
	for errors.As(err, &request) {
		err, request = request.Err, nil
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return NetworkText(err.Error())
}

// causes maps parts of messages to plain causes. The messages come from libraries that do not
// export error values.
var causes = []struct{ part, means string }{
	{"connection refused", "connection refused, nothing listens there"},
	{"produced zero addresses", "the host is unknown"},
	{"no such host", "the host is unknown"},
	{"missing port in address", "the port is missing: give HOST:PORT"},
	{"invalid port", "the port must be a number from 1 to 65535"},
	{"unknown port", "the port must be a number from 1 to 65535"},
	{"first record does not look like a TLS handshake", "the server there does not speak TLS"},
	{"server gave HTTP response to HTTPS client", "the server there does not speak TLS"},
	{"malformed HTTP", "the server there does not speak HTTP"},
	{"frame too large", "the server there speaks another protocol"},
	{"error reading server preface", "the server there speaks another protocol, or requires certificates"},
	{"i/o timeout", "no answer in time"},
	{"deadline exceeded", "no answer in time"},
}

// NetworkText returns a library's message in plain words. It returns unknown messages unchanged.
func NetworkText(message string) string {
	for _, c := range causes {
		if strings.Contains(message, c.part) {
			return c.means
		}
	}
	return message
}
