package stand

import (
	"fmt"

	"penstock/lab/ledger"
)

// Recover undoes what killed runs have left on this machine, runs of other packages included:
// their disks, daemons or kernel parameters would disturb the next run. It leaves living runs
// alone; they hold their ledgers locked. It prints what it cannot undo and goes on.
func Recover() {
	recovered, _, err := ledger.RecoverAll()
	for _, dir := range recovered {
		fmt.Println("undone what a killed run had left:", dir)
	}
	if err != nil {
		fmt.Println("not undone what a killed run had left:", err)
	}
}
