// Package tidy has the rules of STYLE.md that a machine can check, as tests.
//
// A rule that is only written down is soon forgotten. The design depends on these rules: core/
// stays pure, so that the daemon, the tests and a simulator drive the same code; the product
// changes nothing of the system; the central files stay short; one thing has one word. Each rule
// reads the files of the tree, whether or not git tracks them. It reports every breach by file and
// line, and says how to fix it. If a rule is wrong for a case, change the rule here and write the
// reason beside it. No comment can switch a rule off.
package tidy
