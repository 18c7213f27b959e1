package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/broker/roles"
	"penstock/core/deadline"
	"penstock/core/forecast"
	"penstock/wire/cluster"
)

const (
	maxForecasts = 10_000 // applications with a model; any further ones have no forecast
	// forecastRetention is how long the model of an application is kept while the application is at no node.
	forecastRetention = 10 * time.Minute
	// staleProgress is how long an application's progress may be unknown, or the application at no node, before its model counts no more.
	staleProgress = time.Minute
)

// forecaster is the model of one application.
type forecaster struct {
	forecast.Account
	trace  forecast.Trace
	kind   forecast.Kind
	learns bool // its run is to be added to the history when it ends
}

// observeProgress adds an observation to the model of each application whose progress is known. b.mu is held. The cost is one look-up for
// each application.
func (b *Broker) observeProgress(names []string) {
	now := time.Since(b.created)
	rates, weights := 0.0, 0.0
	for _, name := range names {
		total, _ := b.totals.Of(name)
		rates += float64(total.Rate)
		weights += b.rights[name].weight
	}
	for _, name := range names {
		life := b.options.Life(name)
		if life.Progress < 0 || life.Ended {
			continue
		}
		f := b.forecasts[name]
		if f == nil {
			if len(b.forecasts) >= maxForecasts || b.awaitsLearned() {
				continue
			}
			f = b.newForecaster(name)
			if b.forecasts == nil {
				b.forecasts = map[string]*forecaster{}
			}
			b.forecasts[name] = f
		}
		state := forecast.State{Progress: life.Progress, Boundary: life.Boundary, Work: life.Work, Rates: rates}
		state.Total, _ = b.totals.Of(name)
		if weights > 0 {
			state.Entitled = b.rights[name].weight / weights
		}
		if t := b.totalRates[name]; t != nil {
			state.Guaranteed = t.Verdict.Granted * float64(t.Total.Reserve)
		}
		o := f.Observe(now, silentPeriods*maxPeriod, state)
		if f.learns {
			f.trace.Observe(o)
		}
	}
	for name, f := range b.forecasts {
		if f.At() != now {
			b.learn(name, f, now)
		}
		if now-f.At() > forecastRetention {
			delete(b.forecasts, name)
		}
	}
}

// newForecaster returns a model that uses what was learned from earlier runs of the application's kind. b.mu is held.
func (b *Broker) newForecaster(name string) *forecaster {
	facts := b.options.Facts(name)
	f := &forecaster{}
	if f.kind, f.learns = forecast.KindOf(facts.Type, facts.User, facts.Name); f.learns {
		f.Model.Use(b.history.Curve(f.kind))
	}
	return f
}

// learn adds the run of an application to the history, once it is known to have ended well. b.mu is held.
func (b *Broker) learn(name string, f *forecaster, now time.Duration) {
	if !f.learns {
		return
	}
	life := b.options.Life(name)
	if !life.Ended || !life.Succeeded {
		return
	}
	end := now
	if life.Finished > 0 {
		end = min(end, time.UnixMilli(life.Finished).Sub(b.created))
	}
	f.learns = false
	learned := b.history.Learn(f.kind, &f.trace, end)
	if learned {
		b.learning.runs++
	}
	f.trace = forecast.Trace{}
	b.log.Debug("an application has ended", "application", name, "kind", f.kind.Name, "learned", learned)
}

// unixMs returns a time since Broker.created by the wall clock, in ms.
func (b *Broker) unixMs(at time.Duration) int64 { return b.created.Add(at).UnixMilli() }

// describeForecast adds an application's progress and its forecast, if there is one. b.mu is held.
func (b *Broker) describeForecast(name string, s *cluster.ApplicationState) {
	m := b.model(name)
	if m == nil || b.options.Life(name).Ended {
		return
	}
	s.Progress = m.Progress()
	if end, err := m.Forecast(0); err == nil {
		s.ForecastEndUnixMs, s.ForecastLowUnixMs, s.ForecastHighUnixMs = b.unixMs(end.Expected), b.unixMs(end.Low), b.unixMs(end.High)
	}
}

// Forecast implements cluster.OperatorsServer.
func (o operators) Forecast(ctx context.Context, r *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	return guarded(ctx, o.b, call{name: "Forecast", needs: roles.Viewer}, func(caller) (*cluster.ForecastAnswer, error) {
		return o.forecast(r)
	})
}

func (o operators) forecast(r *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	if share := r.GetShare(); !(share >= 0 && share <= 1) {
		return nil, answerError(invalidRequest(fmt.Errorf("share %v: use a part of the cluster's service above 0 %% and at most 100 %%", share)))
	}
	if r.GetShare() != 0 && r.GetByUnixMs() != 0 {
		return nil, answerError(invalidRequest(errors.New("give a share or a time, not both")))
	}
	return o.b.forecast(r)
}

// model returns the model of an application; nil if there is none, or it is too old. b.mu is held.
func (b *Broker) model(name string) *forecast.Model {
	if f := b.forecasts[name]; f != nil && time.Since(b.created)-f.At() <= staleProgress {
		return &f.Model
	}
	return nil
}

// noModel returns why an application at work has no model. b.mu is held.
func (b *Broker) noModel(name string) error {
	if b.forecasts[name] != nil {
		return errStale
	}
	if len(b.forecasts) >= maxForecasts {
		return fmt.Errorf("the broker forecasts at most %d applications at a time, and has as many", maxForecasts)
	}
	return errNoProgress
}

var errStale = fmt.Errorf("its progress has not been known for %v: the cluster manager, or a Spark driver behind its proxy, does not answer, or the driver runs no job", staleProgress)

var errNoProgress = errors.New("its progress is not known: YARN must report it, or a Spark driver behind YARN's or Spark's proxy, and the broker must have the addresses (--resource-manager, --spark-master)")

// forecast returns the answer for an application. Errors: NotFound.
func (b *Broker) forecast(r *cluster.ForecastRequest) (*cluster.ForecastAnswer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := r.GetApplication()
	f := b.forecasts[name]
	_, atWork := b.totals.Of(name)
	if b.options.Life(name).Ended {
		a := &cluster.ForecastAnswer{Progress: -1, Reason: "it has ended", Ended: true}
		if f != nil {
			a.Progress = f.Model.Progress()
		}
		return a, nil
	}
	if f == nil && !atWork {
		return nil, status.Errorf(codes.NotFound, "%.*q is not at work at any node that reports (`penstock app list` lists the applications at work)", cluster.MaxName, name)
	}
	if f == nil {
		return &cluster.ForecastAnswer{Progress: -1, Reason: b.noModel(name).Error()}, nil
	}
	m := &f.Model
	switch {
	case !atWork:
		return &cluster.ForecastAnswer{Progress: m.Progress(), Reason: fmt.Sprintf("it has not been at work at any node for %v: it has ended, or does not use any disk at present",
			(time.Since(b.created) - f.At()).Round(time.Second))}, nil
	case b.model(name) == nil:
		return &cluster.ForecastAnswer{Progress: m.Progress(), Reason: errStale.Error()}, nil
	}
	a := &cluster.ForecastAnswer{Progress: m.Progress(), Present: m.LastShare(), Share: r.GetShare(), EarlierRuns: uint32(m.Runs()), Done: m.Done()}
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
	if r.GetByUnixMs() != 0 {
		if need, err := m.Need(time.UnixMilli(r.GetByUnixMs()).Sub(b.created)); err == nil {
			a.Rate = uint64(min(need.Rate, 1<<60))
		}
		var g deadline.Goal
		if v := g.Update(time.Since(b.created), time.UnixMilli(r.GetByUnixMs()).Sub(b.created), m, 0); v.Reason != nil {
			a.Refusal = v.Reason.Error()
		}
	}
	end, err := m.Forecast(a.Share)
	if err != nil {
		a.Reason = err.Error()
		return a, nil
	}
	a.EndUnixMs, a.LowUnixMs, a.HighUnixMs = b.unixMs(end.Expected), b.unixMs(end.Low), b.unixMs(end.High)
	return a, nil
}
