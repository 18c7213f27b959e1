package stand

import (
	"fmt"

	"penstock/lab/ledger"
)

// Recover undoes what killed runs, including those of other packages, have left on this machine.
// Their disks, daemons or kernel parameters would disturb the next run. Living runs hold their
// ledgers locked, and Recover leaves them alone. It prints what it cannot undo, and continues.
func Recover() {
	recovered, _, err := ledger.RecoverAll()
	for _, dir := range recovered {
		fmt.Println("undid the changes of a killed run:", dir)
	}
	if err != nil {
		fmt.Println("could not undo the changes of a killed run:", err)
	}
}
