package settings

import "fmt"

// Rate formats bytes per second in the form 12.5 MiB/s, with the unit that limits have in files.
// All commands and views print rates with it.
func Rate(bytesPerSecond float64) string { return fmt.Sprintf("%.1f MiB/s", MiB(bytesPerSecond)) }

// MiB returns a number of bytes in units of 2^20.
func MiB(bytes float64) float64 { return bytes / (1 << 20) }
