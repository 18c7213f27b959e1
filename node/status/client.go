package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"penstock/settings/plain"
	"penstock/wire/web"
)

// DefaultAddress is the address at which a daemon listens by default.
const DefaultAddress = "127.0.0.1:9707"

const (
	maxDocument = 64 << 20 // bytes
	askWait     = 5 * time.Second
)

// Fetch requests the status from the daemon at address, host:port or unix:PATH, with the token in the file that web.TokenEnv
// names.
func Fetch(ctx context.Context, address string) (*Document, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	resp, err := web.Get(ctx, address, "/status")
	var wrong *web.AddressError
	var request *url.Error
	switch {
	case errors.As(err, &wrong) || err != nil && !errors.As(err, &request): // the address or the file with the token
		return nil, err
	case err != nil:
		return nil, unanswered(ctx, address, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", address, err)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("status of %s: the daemon requires a token (listen_token): name the file with it in the environment variable %s", address, web.TokenEnv)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status of %s: %s: is it a Penstock daemon, and not an older one?", address, resp.Status)
	}
	d, err := Parse(body)
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", address, err)
	}
	return d, nil
}

// unanswered returns an error that says why no daemon has answered and what to do.
func unanswered(ctx context.Context, address string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	advice := "start it with penstock node run, or give its \"listen\" address with --address"
	if !errors.Is(err, syscall.ECONNREFUSED) {
		advice = "give the daemon's \"listen\" address with --address"
	}
	return fmt.Errorf("no daemon answers at %w: %s", plain.Network(address, err), advice)
}

// Parse reads a document. It ignores unknown fields, since a newer daemon may send more fields.
func Parse(body []byte) (*Document, error) {
	if len(body) > maxDocument {
		return nil, fmt.Errorf("over %d bytes", maxDocument)
	}
	d := &Document{}
	if err := json.Unmarshal(body, d); err != nil {
		return nil, fmt.Errorf("no document of a Penstock daemon (%w)", err)
	}
	switch {
	case d.Version == 0:
		return nil, errors.New("no document of a Penstock daemon")
	case d.Version != Version:
		return nil, fmt.Errorf("the document has version %d, but this penstock reads version %d: use the penstock that belongs to the daemon", d.Version, Version)
	}
	return d, nil
}
