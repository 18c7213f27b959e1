// Package kdc runs a real Kerberos server (MIT's, Debian's krb5-kdc and krb5-admin-server) on loopback,
// for tests of programs in a secured cluster.
//
// All files are in one folder: the database, the configuration of the server and of its clients, and
// the log. The server is recorded in the run's ledger, so it ends with the run. Principals and
// keytabs are made in the database itself, with kadmin.local, so no administration server is needed.
package kdc

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/ports"
	"penstock/lab/process"
)

// Name is the name of a realm, unless the options have another one.
const Name = "PENSTOCK.TEST"

const (
	patience = time.Minute
	grace    = 5 * time.Second
)

// Options are the options of a server.
type Options struct {
	Book *ledger.Ledger // ledger of the server's run
	Dir  string         // folder of all files
	Name string         // of the realm; default: Name
}

// Server is a Kerberos server. Only one goroutine may call its methods.
type Server struct {
	Address string // host:port
	Config  string // path of krb5.conf for clients
	Log     string // path

	options Options
	process *process.Process
}

// Start makes an empty realm, starts its server and returns when the server answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.Name = cmp.Or(o.Name, Name)
	address, err := ports.Address()
	if err != nil {
		return nil, err
	}
	s := &Server{Address: address, Config: filepath.Join(o.Dir, "krb5.conf"), Log: filepath.Join(o.Dir, "kdc.log"), options: o}
	for file, text := range map[string]string{s.Config: s.client(), s.profile(): s.settings()} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := s.run(ctx, "", "kdb5_util", "create", "-s", "-r", o.Name, "-P", "master"); err != nil {
		return nil, err
	}
	return s, s.Start(ctx)
}

// client returns the text of krb5.conf.
func (s *Server) client() string {
	return fmt.Sprintf(`[libdefaults]
 default_realm = %[1]s
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 udp_preference_limit = 1
[realms]
 %[1]s = {
  kdc = %[2]s
 }
`, s.options.Name, s.Address)
}

func (s *Server) profile() string { return filepath.Join(s.options.Dir, "kdc.conf") }

// settings returns the text of kdc.conf.
func (s *Server) settings() string {
	return fmt.Sprintf(`[kdcdefaults]
 kdc_listen = %[2]s
 kdc_tcp_listen = %[2]s
[realms]
 %[1]s = {
  database_name = %[3]s/principal
  key_stash_file = %[3]s/stash
  acl_file = %[3]s/acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  default_principal_flags = +preauth
 }
[logging]
 kdc = STDERR
`, s.options.Name, s.Address, s.options.Dir)
}

// Start starts a killed server again, at the same address.
func (s *Server) Start(ctx context.Context) error {
	program, err := find("krb5kdc")
	if err != nil {
		return err
	}
	s.process, err = process.Start(process.Options{Book: s.options.Book, Name: "krb5kdc", Log: s.Log, Dir: s.options.Dir, Env: s.environment()}, program, "-n")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = s.process.Find(ctx, regexp.MustCompile(`commencing operation`))
	return err
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() { s.process.Kill() }

// Stop ends the server.
func (s *Server) Stop() error { return s.process.Stop(grace) }

// Add adds principals with random keys, such as HTTP/localhost. The options are those of kadmin's
// addprinc, such as `-maxlife "2 seconds"`.
func (s *Server) Add(ctx context.Context, options string, principals ...string) error {
	return s.each(ctx, "addprinc -randkey "+options, principals)
}

// Trust makes the realm accept principals of another one. Their two servers then have a key in common.
func (s *Server) Trust(ctx context.Context, other *Server) error {
	name := []string{"krbtgt/" + s.options.Name + "@" + other.options.Name}
	for _, one := range []*Server{s, other} {
		if err := one.each(ctx, "addprinc -pw shared", name); err != nil {
			return err
		}
	}
	return nil
}

// Keytab writes new keys of the principals to a file. The KDC then accepts no older key. If the file
// exists, the keys are added to it.
func (s *Server) Keytab(ctx context.Context, file string, principals ...string) error {
	return s.each(ctx, "ktadd -k "+file, principals)
}

// Modify changes principals. The options are those of kadmin's modprinc.
func (s *Server) Modify(ctx context.Context, options string, principals ...string) error {
	return s.each(ctx, "modprinc "+options, principals)
}

// Delete deletes principals.
func (s *Server) Delete(ctx context.Context, principals ...string) error {
	return s.each(ctx, "delprinc -force", principals)
}

// each runs a command of kadmin for each principal.
func (s *Server) each(ctx context.Context, command string, principals []string) error {
	var input strings.Builder
	for _, p := range principals {
		fmt.Fprintf(&input, "%s %s\n", command, p)
	}
	return s.run(ctx, input.String(), "kadmin.local", "-r", s.options.Name)
}

// run runs a program of Kerberos. Some of them report errors only in their output.
func (s *Server) run(ctx context.Context, input, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := find(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.Stdin = s.environment(), s.options.Dir, strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || program == "kadmin.local" && failure.Match(errs.Bytes()) {
		return fmt.Errorf("%s: %v: %s%s", strings.Join(append([]string{program}, args...), " "), err, out.Bytes(), errs.Bytes())
	}
	return nil
}

// failure matches the messages of kadmin.local that are no notes or warnings.
var failure = regexp.MustCompile(` while |does not exist`)

func (s *Server) environment() []string {
	return append(os.Environ(), "KRB5_CONFIG="+s.Config, "KRB5_KDC_PROFILE="+s.profile(), "LC_ALL=C")
}

// find returns the path of a server's program. Debian installs it in a folder that is not on every user's PATH.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	path := filepath.Join("/usr/sbin", program)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: install krb5-kdc and krb5-admin-server (`make setup`)", program)
	}
	return path, nil
}
