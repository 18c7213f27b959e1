package network

import (
	"net/netip"
	"testing"
	"time"
)

// A probe makes trips in the namespaces of its ends until it is ended, and can be used again.
func TestProbe(t *testing.T) {
	both, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer both.close()
	p, err := StartProbe(ProbePlace{Client: both.do, Server: both.do, Address: netip.MustParseAddrPort("127.0.0.1:5201")}, DefaultSetup())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Begin(5 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // the trips of this time are counted
		trip, err := p.End()
		if err != nil {
			t.Fatal(err)
		}
		if trip.Trips < 2 || trip.Trips > 61 || !(trip.P50US > 0 && trip.P50US <= trip.P99US && trip.MeanUS > 0 && trip.RunDelayUS >= 0) {
			t.Errorf("%+v", trip)
		}
	}
	// Trips that are ended at once are at least one.
	if err := p.Begin(time.Hour); err != nil {
		t.Fatal(err)
	}
	if trip, err := p.End(); err != nil || trip.Trips != 1 {
		t.Errorf("%+v, %v", trip, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestProbeWithoutItsCgroup(t *testing.T) {
	if _, err := StartProbe(ProbePlace{Cgroup: t.TempDir() + "/none"}, DefaultSetup()); err == nil {
		t.Error("no error")
	}
}
