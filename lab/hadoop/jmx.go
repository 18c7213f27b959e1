package hadoop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

var pages = Cluster{http: &http.Client{Timeout: 10 * time.Second}}

// Page returns what is at a web address of a server, at most 8 MiB of it.
func Page(ctx context.Context, address string) ([]byte, error) { return pages.get(ctx, address) }

// Bean decodes one bean of a server's JMX, such as "penstock:type=Agent". The address is the base of the
// server's web address. It is an error if there is not exactly one such bean.
func Bean(ctx context.Context, address, name string, into any) error {
	body, err := Page(ctx, address+"/jmx?qry="+url.QueryEscape(name))
	if err != nil {
		return err
	}
	var doc struct{ Beans []json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	if len(doc.Beans) != 1 {
		return fmt.Errorf("%s: %d beans %s, want one", address, len(doc.Beans), name)
	}
	return json.Unmarshal(doc.Beans[0], into)
}
