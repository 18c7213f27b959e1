package kernel

import (
	"testing"

	"pgregory.net/rapid"
)

// The file has the largest possible folios, and a call leaves out pages if its range begins inside of a folio. All pages are
// counted all the same. If the page cache changes between the calls, no count is below that of the first call or above the range.
func TestAllPagesAreCounted(t *testing.T) {
	const perFolio, pages = maxFolioBytes / pageBytes, 4 * maxFolioBytes / pageBytes
	rapid.Check(t, func(t *rapid.T) {
		type page struct{ resident, unsaved, evicted bool }
		var file [pages]page
		change := func(label string) {
			from := rapid.IntRange(0, pages-1).Draw(t, label)
			to := rapid.IntRange(from, pages).Draw(t, "to")
			as := rapid.SampledFrom([]page{{}, {evicted: true}, {resident: true}, {resident: true, unsaved: true}}).Draw(t, "as")
			for i := from; i < to; i++ {
				file[i] = as
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "ranges") {
			change("from")
		}
		changing := rapid.Bool().Draw(t, "changing")
		count := func(first, end int) (c pageCounts) {
			for _, p := range file[min(first, pages):min(end, pages)] {
				if p.resident {
					c.Resident++
				}
				if p.unsaved {
					c.Unsaved++
				}
				if p.evicted {
					c.evicted++
				}
			}
			return c
		}
		off := rapid.Int64Range(0, pages*pageBytes-1).Draw(t, "offset")
		length := rapid.OneOf(rapid.Int64Range(1, pages*pageBytes), rapid.Just(int64(1)<<62)).Draw(t, "length")
		touched := (off+length-1)/pageBytes - off/pageBytes + 1
		var least Pages
		calls := 0
		got, err := pageCounter(func(off, length int64) (pageCounts, error) {
			if calls++; calls > 1 && changing {
				change("between from")
			}
			first, end := int(off/pageBytes), int(min(pages, (off+length-1)/pageBytes+1))
			c := count(first, end)
			if inside := first % perFolio; inside > 0 {
				next := min(end, first-inside+perFolio)
				c = count(first, next)
				// As many pages are left out behind the folio as there are before the range in the folio.
				rest := count(min(end, next+inside), end)
				c.Resident, c.Unsaved, c.evicted = c.Resident+rest.Resident, c.Unsaved+rest.Unsaved, c.evicted+rest.evicted
			}
			if calls == 1 {
				least = c.Pages
			}
			return c, nil
		}).whole(off, length)
		if err != nil {
			t.Fatal(err)
		}
		if got.Resident < least.Resident || got.Unsaved < least.Unsaved || got.Resident > touched || got.Unsaved > touched {
			t.Fatalf("%+v, after %+v, of %d pages", got, least, touched)
		}
		// If that folio has no page, the real call leaves nothing out.
		first := int(off / pageBytes)
		folio := count(first, min(pages, first-first%perFolio+perFolio))
		if want := count(first, int(min(pages, (off+length-1)/pageBytes+1))); !changing && folio.Resident+folio.evicted > 0 && got != want.Pages {
			t.Fatalf("%+v, want %+v", got, want.Pages)
		}
	})
}
