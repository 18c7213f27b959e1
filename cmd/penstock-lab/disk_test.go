package main

import (
	"strings"
	"testing"
	"time"

	"penstock/cmd/internal/cli"

	"penstock/lab/disk"

	"github.com/spf13/cobra"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "512": 512, "64K": 64 << 10, "12M": 12 << 20, "1.5G": 3 << 29, "2T": 2 << 40, "2000000K": 2000000 << 10,
	} {
		if got, err := cli.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "M", "-1", "NaN", "Inf", "12MB", "12m", "1e30", "99999T"} {
		if got, err := cli.ParseBytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

func TestModelFlags(t *testing.T) {
	ms := time.Millisecond
	slow := disk.SSD(8 << 20)
	slow.WriteBytesPerSecond, slow.Channels, slow.ReadLatency, slow.WriteLatency = 4<<20, 4, 2*ms, 5*ms
	near := disk.HDD(12 << 20)
	near.SeekMin, near.SeekMax, near.AgeMax = ms, 2*ms, 9*ms
	for args, want := range map[string]disk.Model{
		"":                        disk.HDD(disk.HDDRate),
		"--kind ssd":              disk.SSD(disk.SSDRate),
		"--rate 0":                disk.HDD(0),
		"--kind ssd --rate 8M":    disk.SSD(8 << 20),
		"--kind ssd --rate 0":     disk.SSD(0),
		"--seek-min 0 --rate 12M": {BytesPerSecond: 12 << 20, SeekMax: 14 * ms},
		"--kind ssd --rate 8M --write-rate 4M --channels 4 --read-latency 2ms --write-latency 5ms": slow,
		"--rate 12M --seek-min 1ms --seek-max 2ms --age-max 9ms":                                   near,
	} {
		var f modelFlags
		cmd := &cobra.Command{}
		f.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if got, err := f.model(cmd.Flags().Changed); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", args, got, err, want)
		}
	}
	for args, what := range map[string]string{
		"--kind tape":               "--kind",
		"--rate fast":               "--rate",
		"--write-rate fast":         "--write-rate",
		"--kind ssd --seek-max 9ms": "no head",
		"--read-latency 1ms":        "channels",
		"--channels 8":              "no head",
		"--kind ssd --channels 129": "channels",
	} {
		var f modelFlags
		cmd := &cobra.Command{}
		f.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.model(cmd.Flags().Changed); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v, want an error about %s", args, err, what)
		}
	}
}
