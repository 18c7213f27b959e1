// Package stand runs a package's end-to-end tests on what they share: it is set up once,
// and put back however the tests end, also by a signal. What a run has left that was killed is
// put back before the next one.
package stand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"penstock/lab/ledger"
)

// Recover puts back what runs that were killed have left on this machine, other packages'
// too: a disk, a daemon or a kernel's limit of theirs would be in the tests' way. Runs that
// live hold their ledgers locked and are left alone. What cannot be put back is said, and
// does not keep the tests from running.
func Recover() {
	recovered, _, err := ledger.RecoverAll()
	for _, dir := range recovered {
		fmt.Println("put back what a killed run had left:", dir)
	}
	if err != nil {
		fmt.Println("not put back what a killed run had left:", err)
	}
}

// Run sets up, runs the tests and tears down, and gives the exit code. Dir is the folder
// that setUp makes; it stays if something failed, for its logs. TearDown may be called
// twice, and before setUp is done.
func Run(tests interface{ Run() int }, dir *string, setUp func(context.Context) error, tearDown func() error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, ended := 1, make(chan struct{})
	Recover()
	begin := time.Now()
	err := setUp(ctx)
	if err == nil {
		fmt.Printf("ready after %.1f s in %s\n", time.Since(begin).Seconds(), *dir)
		go func() {
			<-ctx.Done()
			select {
			case <-ended:
			default:
				fmt.Println("interrupted: putting everything back")
				tearDown() // the tests fail for want of what they share, and end
			}
		}()
		code = tests.Run()
		close(ended)
	}
	if err = errors.Join(err, tearDown()); err != nil {
		fmt.Println("FAIL:", err)
		code = 1
	}
	if code != 0 {
		fmt.Println("logs kept in", *dir)
	} else if err := os.RemoveAll(*dir); err != nil {
		fmt.Println(err)
	}
	return code
}
