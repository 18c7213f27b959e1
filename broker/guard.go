package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/broker/audit"
	"penstock/broker/roles"
)

// Each call of an operator goes through guarded, which checks the caller's role and records the call.

// call describes an operator's call.
type call struct {
	name  string // as in the protocol
	needs roles.Role
	// what describes a change for the audit log; empty: the call changes nothing.
	what string
	// urgent: the change is made even if the audit log cannot be written.
	urgent bool
}

// errRole means that the caller has a role, but not the one that the call needs.
var errRole = errors.New("a larger role is required")

// guarded answers a call if its caller may make it. The errors of do are converted for clients.
func guarded[A any](ctx context.Context, b *Broker, c call, do func(caller) (A, error)) (A, error) {
	var answer A
	who := b.callerOf(ctx)
	record := audit.Record{Who: who.name, By: who.by, From: who.host, Call: c.name, What: c.what}
	if who.operator {
		record.Role = who.Role.String()
	}
	if err := mayCall(who, c); err != nil {
		record.Outcome, record.Why = audit.Refused, err.Error()
		b.options.Audit.Note(record)
		return answer, answerError(err)
	}
	if c.what == "" {
		answer, err := do(who)
		if record.Outcome = audit.Done; err != nil {
			record.Outcome, record.Why = audit.Failed, err.Error()
		}
		b.options.Audit.Note(record)
		return answer, answerErrorOf(err)
	}
	record.From = who.from
	err := b.audited(record, c.urgent, func() (version uint64, err error) {
		answer, err = do(who)
		if v, ok := any(answer).(interface{ GetVersion() uint64 }); ok && err == nil {
			version = v.GetVersion()
		}
		return version, err
	})
	return answer, answerErrorOf(err)
}

// mayCall returns an error if the caller may not make a call.
func mayCall(who caller, c call) error {
	switch {
	case who.expired != nil:
		return who.expired
	case !who.operator:
		return errOperator
	case who.Role == roles.None:
		return fmt.Errorf("%w: %q has no role in the broker's file of roles (--roles), and %s needs the role %v", errRole, who.name, c.name, c.needs)
	case who.Role < c.needs:
		return fmt.Errorf("%w: %q has the role %v, and %s needs the role %v; ask an operator to do it, or to change the broker's file of roles (--roles)", errRole, who.name, who.Role, c.name, c.needs)
	}
	return nil
}

// audited makes a change, with a record before it and one with its outcome. If the first one cannot be written, the change
// is not made, unless it is urgent.
func (b *Broker) audited(r audit.Record, urgent bool, change func() (version uint64, err error)) error {
	r.ID, r.Outcome = rand.Text(), audit.Begun
	if err := b.options.Audit.Write(r); err != nil {
		b.log.Error("the audit log cannot be written", "call", r.Call, "who", r.Who, "error", err)
		if !urgent {
			return status.Errorf(codes.Internal, "the change was not made, because the broker cannot record it: %v", err)
		}
	}
	version, err := change()
	r.Outcome, r.Version = audit.Done, version
	switch {
	case errors.Is(err, errRole):
		r.Outcome, r.Why = audit.Refused, err.Error()
	case err != nil:
		r.Outcome, r.Why = audit.Failed, err.Error()
	}
	if lost := b.options.Audit.Write(r); lost != nil {
		b.log.Error("the outcome of a change is not in the audit log", "call", r.Call, "who", r.Who, "version", version, "outcome", r.Outcome, "why", cmp.Or(r.Why, "-"), "error", lost)
	}
	return err
}

// auditInterval is the time between two looks for counted calls that are due.
const auditInterval = 10 * time.Second

// sweepAudit records counted calls that are due, until ctx ends.
func (b *Broker) sweepAudit(ctx context.Context) {
	ticker := time.NewTicker(auditInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.options.Audit.Sweep()
		}
	}
}

// answerErrorOf is answerError for an error that may be nil.
func answerErrorOf(err error) error {
	if err == nil {
		return nil
	}
	return answerError(err)
}
