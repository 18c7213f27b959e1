package hadoop

import (
	"context"
	"encoding/json"
	"fmt"
)

// Page returns what is at a web address of a server of the cluster, at most 8 MiB of it.
func (c *Cluster) Page(ctx context.Context, url string) ([]byte, error) { return c.get(ctx, url) }

// Bean reads a bean, such as penstock:type=Agent, of the JMX of the server at a web address.
func (c *Cluster) Bean(ctx context.Context, url, name string, into any) error {
	body, err := c.get(ctx, url+"/jmx?qry="+name)
	if err != nil {
		return err
	}
	var doc struct{ Beans []json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if len(doc.Beans) != 1 {
		return fmt.Errorf("%s: no bean %s", url, name)
	}
	return json.Unmarshal(doc.Beans[0], into)
}
