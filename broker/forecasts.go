package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/core/coord"
	"penstock/core/forecast"
	"penstock/wire/cluster"
)

const (
	maxForecasts = 10_000 // applications with a model; any further ones have no forecast
	// forecastRetention is how long the model of an application is kept while the application is at no node.
	forecastRetention = 10 * time.Minute
)

// forecaster is the model of one application.
type forecaster struct {
	model   forecast.Model
	at      time.Duration // of the last observation, since Broker.created
	service float64       // seconds of device time
	devices float64       // the most devices on which the application had a backlog; 0: not known
}

// observeProgress adds an observation to the model of each application whose progress is known. The share is the larger one of
// the application's entitlement and of what it has: others may not use theirs. b.mu is held. The cost
// is one look-up for each application.
func (b *Broker) observeProgress(names []string) {
	now := time.Since(b.created)
	rates, weights := 0.0, 0.0
	for _, name := range names {
		total, _ := b.totals.Of(name)
		rates += float64(total.Rate)
		weights += b.rights[name].weight
	}
	for _, name := range names {
		progress := b.options.Progress(name)
		if progress < 0 {
			continue
		}
		f := b.forecasts[name]
		if f == nil {
			if len(b.forecasts) >= maxForecasts {
				continue
			}
			f = &forecaster{at: now}
			if b.forecasts == nil {
				b.forecasts = map[string]*forecaster{}
			}
			b.forecasts[name] = f
		}
		total, _ := b.totals.Of(name)
		f.service += float64(total.Rate) / coord.Second * min(now-f.at, silentPeriods*maxPeriod).Seconds()
		f.devices = max(f.devices, float64(total.Room)/coord.Second)
		f.at = now
		o := forecast.Observation{Time: now, Progress: progress, Service: -1}
		if f.devices > 0 {
			o.Service = f.service / f.devices
		}
		if rates > 0 {
			o.Share = float64(total.Rate) / rates
		}
		if weights > 0 {
			o.Share = max(o.Share, b.rights[name].weight/weights)
		}
		f.model.Observe(o)
	}
	for name, f := range b.forecasts {
		if now-f.at > forecastRetention {
			delete(b.forecasts, name)
		}
	}
}

// unixMs returns a time since Broker.created by the wall clock, in ms.
func (b *Broker) unixMs(at time.Duration) int64 { return b.created.Add(at).UnixMilli() }

// describeForecast adds an application's progress and its forecast, if there is one. b.mu is held.
func (b *Broker) describeForecast(name string, s *cluster.ApplicationState) {
	f := b.forecasts[name]
	if f == nil {
		return
	}
	s.Progress = f.model.Progress()
	if end, err := f.model.Forecast(0); err == nil {
		s.ForecastEndUnixMs, s.ForecastLowUnixMs, s.ForecastHighUnixMs = b.unixMs(end.Expected), b.unixMs(end.Low), b.unixMs(end.High)
	}
}

// Forecast implements cluster.OperatorsServer.
func (o operators) Forecast(ctx context.Context, r *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	if _, err := operator(ctx); err != nil {
		return nil, answerError(err)
	}
	if share := r.GetShare(); !(share >= 0 && share <= 1) {
		return nil, answerError(invalidRequest(fmt.Errorf("share %v: use a part of the cluster's service above 0 %% and at most 100 %%", share)))
	}
	if r.GetShare() != 0 && r.GetByUnixMs() != 0 {
		return nil, answerError(invalidRequest(errors.New("give a share or a time, not both")))
	}
	return o.b.forecast(r)
}

// forecast returns the answer for an application. Errors: NotFound.
func (b *Broker) forecast(r *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.forecasts[r.GetApplication()]
	if f == nil {
		if _, atWork := b.totals.Of(r.GetApplication()); !atWork {
			return nil, status.Errorf(codes.NotFound, "%.*q is not at work at any node that reports (`penstock app list` lists the applications at work)", cluster.MaxName, r.GetApplication())
		}
		return &cluster.ForecastAnswer{Progress: -1, Reason: "its progress is not known: YARN must report it, and the broker must have the ResourceManager's address (--resource-manager)"}, nil
	}
	m := &f.model
	a := &cluster.ForecastAnswer{Progress: m.Progress(), Present: m.LastShare(), Share: r.GetShare()}
	var err error
	if a.DiskPart, a.DiskError, err = m.Disk(); err == nil && r.GetByUnixMs() != 0 {
		a.Share, err = m.Share(time.UnixMilli(r.GetByUnixMs()).Sub(b.created))
	}
	if err != nil {
		a.Reason = err.Error()
		return a, nil
	}
	if a.Share == 0 {
		a.Share = a.Present
	}
	end, err := m.Forecast(a.Share)
	if err != nil {
		a.Reason = err.Error()
		return a, nil
	}
	a.EndUnixMs, a.LowUnixMs, a.HighUnixMs = b.unixMs(end.Expected), b.unixMs(end.Low), b.unixMs(end.High)
	return a, nil
}
