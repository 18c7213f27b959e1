package hadoop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"time"
)

const answerMax = 64 << 20 // bytes

// web is the client for small requests. Requests for file contents use bulk, and the caller's context
// bounds them. Neither uses a proxy, which could not reach the servers of this machine.
var (
	web  = &http.Client{Timeout: 30 * time.Second, Transport: direct()}
	bulk = &http.Client{Transport: direct()}
)

func direct() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	return t
}

// send sends a request. An answer other than 2xx is an error; for a missing file the error is
// fs.ErrNotExist. The caller must close the answer's body.
func send(ctx context.Context, client *http.Client, method, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	if client != bulk {
		req.Header.Set("Accept", "application/json")
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var remote struct {
		RemoteException struct{ Exception, Message string }
	}
	said := &remote.RemoteException
	if json.Unmarshal(text, &remote) != nil || said.Exception == "" {
		return nil, fmt.Errorf("%s: %s: %.300s", url, resp.Status, text)
	}
	if said.Exception == "FileNotFoundException" {
		return nil, fmt.Errorf("%w: %s", fs.ErrNotExist, said.Message)
	}
	return nil, fmt.Errorf("%s: %s", said.Exception, said.Message)
}

// fetch sends a request and returns the answer. An answer of more than 64 MiB is an error.
func fetch(ctx context.Context, client *http.Client, method, url string, body io.Reader) ([]byte, error) {
	resp, err := send(ctx, client, method, url, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	if err == nil && len(text) > answerMax {
		err = fmt.Errorf("%s: the answer is larger than %d bytes", url, answerMax)
	}
	return text, err
}

// ask fetches a small JSON document and decodes it.
func ask(ctx context.Context, url string, into any) error {
	return askBy(ctx, web, url, into)
}

// askResourceManager is ask for a ResourceManager, which may want a ticket.
func (c *Cluster) askResourceManager(ctx context.Context, url string, into any) error {
	return askBy(ctx, c.resourceManagerClient(), url, into)
}

func askBy(ctx context.Context, client *http.Client, url string, into any) error {
	body, err := fetch(ctx, client, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// Page returns the document at a server's web address. A document of more than 64 MiB is an error.
func Page(ctx context.Context, address string) ([]byte, error) {
	return fetch(ctx, web, http.MethodGet, address, nil)
}

// Bean decodes one bean of a server's JMX, such as "penstock:type=Agent". address is the base of
// the server's web address. If there is not exactly one such bean, Bean returns an error.
func Bean(ctx context.Context, address, name string, into any) error {
	var doc struct{ Beans []json.RawMessage }
	if err := ask(ctx, address+"/jmx?qry="+url.QueryEscape(name), &doc); err != nil {
		return err
	}
	if len(doc.Beans) != 1 {
		return fmt.Errorf("%s: %d beans have the name %s, want one", address, len(doc.Beans), name)
	}
	if err := json.Unmarshal(doc.Beans[0], into); err != nil {
		return fmt.Errorf("%s: bean %s: %w", address, name, err)
	}
	return nil
}

var blockName = regexp.MustCompile(`blk_\d+`)

// BlockName returns the block that a DataNode's file belongs to: blk_12 for blk_12 and
// blk_12_34.meta. It is empty for a file that belongs to no block.
func BlockName(file string) string { return blockName.FindString(filepath.Base(file)) }

// BlockNames returns the names of the blocks of all files below an HDFS path, including files that
// are still being written. This is the output of `hdfs fsck -files -blocks -openforwrite`, without
// a JVM. Some blocks can be listed twice.
func (c *Cluster) BlockNames(ctx context.Context, path string) ([]string, error) {
	q := url.Values{"ugi": {user()}, "path": {path}, "files": {"1"}, "blocks": {"1"}, "openforwrite": {"1"}}
	body, err := fetch(ctx, bulk, http.MethodGet, c.NameNodeURL()+"/fsck?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("fsck %s: %w", path, err)
	}
	return blockName.FindAllString(string(body), -1), nil
}
