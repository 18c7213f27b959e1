package hadoop

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// Kerberos secures a cluster: all servers and clients identify themselves with Kerberos, the
// DataNodes' connections with SASL, and reads and writes of blocks need block tokens. The
// ResourceManager's web address asks for a ticket (SPNEGO).
//
// Without libhadoop, which is not published as an artifact, MapReduce's reduces and its shuffle handler
// refuse to work on a secured cluster, and containers run as the user of the NodeManager. So a secured
// cluster runs jobs without reduces, and Spark.
type Kerberos struct {
	Config string // path of krb5.conf
	Realm  string
	Keytab string // keys of nn, dn, rm, nm and HTTP at localhost, of HTTP at 127.0.0.1, and of all users
	User   string // the user of clients, unless Job.User names another
	// Protection of data and of remote calls: authentication (the default), integrity (with checksums) or
	// privacy (encrypted).
	Protection string
	// Keystore is a file (PKCS #12) with the key and the certificate of the ResourceManager's web address, and KeystorePassword
	// the file with its password. Without them, the address is http.
	Keystore, KeystorePassword string
	// Client returns a client that identifies itself to the ResourceManagers with these addresses, for the requests of
	// this package.
	Client func(bases ...*url.URL) (*http.Client, error)
}

// validate returns an error unless all files exist.
func (k *Kerberos) validate() error {
	for what, file := range map[string]string{"krb5.conf": k.Config, "keytab": k.Keytab} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("hadoop: Kerberos: no %s: %w", what, err)
		}
	}
	if (k.Keystore == "") != (k.KeystorePassword == "") {
		return fmt.Errorf("hadoop: Kerberos: set Keystore and KeystorePassword, or neither")
	}
	if k.Realm == "" || k.User == "" || k.Client == nil {
		return fmt.Errorf("hadoop: Kerberos needs a realm, a user and an HTTP client")
	}
	return nil
}

// principal returns the principal of a service on this machine.
func (k *Kerberos) principal(service string) string { return service + "/localhost@" + k.Realm }

// kerberosSettings returns the settings that all servers and clients share.
func (cfg *Config) kerberosSettings() properties {
	k := cfg.Kerberos
	if k == nil {
		return nil
	}
	site := properties{
		"hadoop.security.authentication": "kerberos",
		"hadoop.security.authorization":  "true",
		// The users of jobs have no accounts on this machine.
		"hadoop.user.group.static.mapping.overrides": "nn=supergroup;dn=;rm=;nm=;alice=users;bob=users",
		// The principals have the address's name, so that no name server is asked.
		"hadoop.security.token.service.use_ip":      "true",
		"dfs.block.access.token.enable":             "true",
		"dfs.data.transfer.protection":              cmp.Or(k.Protection, "authentication"),
		"hadoop.rpc.protection":                     cmp.Or(k.Protection, "authentication"),
		"ignore.secure.ports.for.testing":           "true",
		"dfs.web.authentication.kerberos.principal": k.principal("HTTP"),
		"dfs.web.authentication.kerberos.keytab":    k.Keytab,
		// There is no history server, and no client should look for one.
		"mapreduce.jobhistory.address":   "",
		"mapreduce.jobhistory.principal": k.principal("rm"),
	}
	for prefix, service := range map[string]string{"dfs.namenode": "nn", "dfs.datanode": "dn", "yarn.resourcemanager": "rm", "yarn.nodemanager": "nm"} {
		principal, keytab := prefix+".principal", prefix+".keytab"
		if service == "nn" || service == "dn" {
			principal, keytab = prefix+".kerberos.principal", prefix+".keytab.file"
		}
		site[principal], site[keytab] = k.principal(service), k.Keytab
	}
	return site
}

// resourceManagerSite returns the properties of a ResourceManager that asks for a ticket at its web
// address.
func (c *Cluster) resourceManagerSite() properties {
	k := c.cfg.Kerberos
	if k == nil {
		return nil
	}
	site := properties{
		"hadoop.http.filter.initializers":                  "org.apache.hadoop.security.AuthenticationFilterInitializer",
		"hadoop.http.authentication.type":                  "kerberos",
		"hadoop.http.authentication.kerberos.principal":    "*", // every HTTP principal of the keytab
		"hadoop.http.authentication.kerberos.keytab":       k.Keytab,
		"hadoop.http.authentication.signature.secret.file": c.secretFile(),
		"yarn.resourcemanager.webapp.spnego-principal":     k.principal("HTTP"),
		"yarn.resourcemanager.webapp.spnego-keytab-file":   k.Keytab,
	}
	if c.https() {
		site["yarn.http.policy"] = "HTTPS_ONLY"
	}
	return site
}

// https reports whether the web addresses of ResourceManagers are https.
func (c *Cluster) https() bool { return c.cfg.Kerberos != nil && c.cfg.Kerberos.Keystore != "" }

// writeKeystoreSite writes ssl-server.xml for each ResourceManager. The file contains the path and the password of the keystore.
func (c *Cluster) writeKeystoreSite() error {
	password, err := os.ReadFile(c.cfg.Kerberos.KeystorePassword)
	if err != nil {
		return fmt.Errorf("hadoop: the password of the keystore: %w", err)
	}
	text := SiteXML(properties{"ssl.server.keystore.location": c.cfg.Kerberos.Keystore, "ssl.server.keystore.type": "pkcs12",
		"ssl.server.keystore.password": string(password), "ssl.server.keystore.keypassword": string(password)})
	for i := range c.ports.rm {
		if err := os.WriteFile(filepath.Join(c.confDir(c.rmName(i)), "ssl-server.xml"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// secretFile is the file with the secret that signs the web server's cookies.
func (c *Cluster) secretFile() string {
	return filepath.Join(c.cfg.RunDir, "conf", "http-signature.secret")
}

// secure prepares what a secured cluster needs, besides its settings.
func (c *Cluster) secure() error {
	if c.cfg.Kerberos == nil {
		return nil
	}
	var bases []*url.URL
	for _, address := range c.ResourceManagerURLs() {
		base, err := url.Parse(address)
		if err != nil {
			return err
		}
		bases = append(bases, base)
	}
	var err error
	if c.managers, err = c.cfg.Kerberos.Client(bases...); err != nil {
		return err
	}
	if c.https() {
		if err := c.writeKeystoreSite(); err != nil {
			return err
		}
	}
	return os.WriteFile(c.secretFile(), []byte(rand.Text()), 0o600)
}

// KerberosUser returns the principal of clients and the file with its key; without Kerberos, both are empty.
func (c *Cluster) KerberosUser() (principal, keytab string) {
	if k := c.cfg.Kerberos; k != nil {
		return k.User + "@" + k.Realm, k.Keytab
	}
	return "", ""
}

// KerberosOptions returns the options of every JVM of the cluster and of its clients; without Kerberos, there are none.
func (c *Cluster) KerberosOptions() []string {
	if k := c.cfg.Kerberos; k != nil {
		return []string{"-Djava.security.krb5.conf=" + k.Config}
	}
	return nil
}

// userEnv returns the environment of the clients of a user; "" is the cluster's own user.
func (cfg *Config) userEnv(name string) []string {
	if k := cfg.Kerberos; k != nil {
		return []string{"KRB5PRINCIPAL=" + cmp.Or(name, k.User) + "@" + k.Realm, "KRB5KEYTAB=" + k.Keytab}
	}
	if name == "" {
		return nil
	}
	return []string{"HADOOP_USER_NAME=" + name}
}

// resourceManagerClient returns the client for requests to ResourceManagers.
func (c *Cluster) resourceManagerClient() *http.Client { return cmp.Or(c.managers, web) }
