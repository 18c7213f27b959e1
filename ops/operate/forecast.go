package operate

import (
	"context"

	"penstock/wire/cluster"
)

// Forecast returns when an application will end.
func (c *Client) Forecast(ctx context.Context, q *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	return ask(ctx, c, cluster.OperatorsClient.Forecast, q)
}
