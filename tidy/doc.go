// Package tidy holds the rules of STYLE.md that a machine can check, as tests.
//
// A rule that is only written down is kept for a month. These are the ones the
// design rests on: core/ stays pure, so that the daemon, the tests and a
// simulator drive the same code; the product changes nothing of the system; the
// files everybody has to read stay short; one thing has one word. Each rule
// reads the tree as it lies there (not what git knows of it), reports every
// breach by file and line, and says in the failure how to mend it. A rule that
// is wrong for a case is changed here, in the open, with the reason beside it;
// there is no comment that switches a rule off.
package tidy
