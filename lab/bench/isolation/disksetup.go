package isolation

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"

	"penstock/lab/contest"
	"penstock/node/profile"
)

// Kinds of modelled disk.
const (
	HDD = contest.HDD
	SSD = contest.SSD
)

// useProfile records the digest of the disks' profile in the set-up. The daemon ignores a profile
// of another disk. Here such a profile is an error, because the experiment would run without the
// requested profile.
func (s *Setup) useProfile(file string) error {
	if file == "" {
		return nil
	}
	p, err := profile.Load(file)
	if err != nil {
		return err
	}
	own := profile.Device{Name: s.Disk.KindName(), Bytes: s.Disk.SizeBytes, Rotational: s.Disk.Channels == 0}
	if err := p.Fits(own); err != nil {
		return fmt.Errorf("profile %s is of another kind of disk than this experiment's: %w; profile a disk made by `penstock-lab disk run --kind %s --size %dM`",
			file, err, cmp.Or(s.Disk.Kind, HDD), s.Disk.SizeBytes/mib)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s.Penstock.ProfileSHA256 = fmt.Sprintf("%x", sha256.Sum256(content))
	return nil
}

// caps returns the caps of the phases that "throttler" stands for: a sixth, a third, a half and two
// thirds of a disk's rate in the aggressor's direction, in whole MB/s. With a smaller cap the disk
// is idle; a larger cap has hardly any effect.
func (s Setup) caps() []int {
	rate := s.Disk.BytesPerSecond
	if _, reads := s.aggressor().directions(); !reads {
		rate = s.Disk.WriteRate()
	}
	var caps []int
	for _, part := range []float64{1. / 6, 1. / 3, 1. / 2, 2. / 3} {
		caps = append(caps, max(1, int(math.Round(part*float64(rate)/megabyte))))
	}
	return slices.Compact(caps)
}
