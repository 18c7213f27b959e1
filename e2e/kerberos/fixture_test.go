package kerberos

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"penstock/broker/kerberos"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/kdc"
	"penstock/lab/stand"
)

const (
	alice = "alice"
	bob   = "bob"
	asker = "penstock" // the principal of the broker, and of the lab when it asks a ResourceManager
)

// shared is a secured cluster with one node, its daemon, and a broker that asks the ResourceManager by https with a keytab.
var shared fixture.Stand

// realm is the cluster's Kerberos server.
var realm *kdc.Server

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:    "kerberos",
		Public:  true,
		Disks:   []disk.Options{{Name: "disk", Size: 4 << 30}},
		Prepare: startRealm,
		Nodes: func(s *stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", Weights: "default: 1\n",
				More: fmt.Sprintf("broker: {addresses: [%q], node: node}\n", s.BrokerAddress())}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{
				DataNodes: s.DataNodes("dfs"), LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")}, Governed: s.Governed(0),
				TaskSlots: 7, // as in e2e/phases
				Kerberos: &hadoop.Kerberos{Config: realm.Config, Realm: kdc.Name, Keytab: servicesKeytab(s), User: alice,
					Protection: os.Getenv("PENSTOCK_PROTECTION"), // default: authentication
					Keystore:   keystore(s), KeystorePassword: password(s),
					Client: access(s).Client},
			}
		},
		Broker: func(s *stand.Stand) []string {
			a := access(s)
			return []string{"--policy", s.PolicyFile(), "--resource-manager", s.Hadoop.ResourceManagerURL(),
				"--kerberos-principal", a.Principal, "--kerberos-keytab", a.Keytab, "--kerberos-config", a.Config, "--hadoop-ca", a.CA}
		},
		Agents: []int{2},
	}, nil)
}

func servicesKeytab(s *stand.Stand) string { return s.Path("kdc/services.keytab") }

// access is the access of a client of the ResourceManager's web address.
func access(s *stand.Stand) kerberos.Access {
	return kerberos.Access{Principal: asker + "@" + kdc.Name, Keytab: s.Path("kdc/penstock.keytab"), Config: realm.Config, CA: s.Path("kdc/rm.pem")}
}

func keystore(s *stand.Stand) string { return s.Path("kdc/rm.p12") }
func password(s *stand.Stand) string { return s.Path("kdc/rm.password") }

// certify makes a key and a self-signed certificate for the ResourceManager's web address.
func certify(ctx context.Context, s *stand.Stand) error {
	if err := os.WriteFile(password(s), []byte(rand.Text()), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-genkeypair", "-keyalg", "RSA", "-validity", "2", "-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1"},
		{"-exportcert", "-rfc", "-file", access(s).CA},
	} {
		args = append(args, "-alias", "rm", "-keystore", keystore(s), "-storetype", "pkcs12", "-storepass:file", password(s))
		if out, err := exec.CommandContext(ctx, "keytool", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("keytool (of the JDK) %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// startRealm starts the Kerberos server, with the principals of all services and users, and makes the certificate.
func startRealm(ctx context.Context, s *stand.Stand) (err error) {
	if err := os.Mkdir(s.Path("kdc"), 0o755); err != nil {
		return err
	}
	if realm, err = kdc.Start(ctx, kdc.Options{Book: s.Book, Dir: s.Path("kdc")}); err != nil {
		return err
	}
	principals := []string{alice, bob, "HTTP/127.0.0.1"}
	for _, service := range []string{"nn", "dn", "rm", "nm", "HTTP"} {
		principals = append(principals, service+"/localhost")
	}
	for file, owners := range map[string][]string{servicesKeytab(s): principals, access(s).Keytab: {asker}} {
		if err := realm.Add(ctx, "", owners...); err != nil {
			return err
		}
		if err := realm.Keytab(ctx, file, owners...); err != nil {
			return err
		}
	}
	return certify(ctx, s)
}
