package config

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"

	"penstock/core/policy"
	"penstock/node/identity"
	"penstock/settings"
)

// Service names processes outside of containers that form one flow, named service: and the name. A
// process belongs to the first entry whose conditions all hold. Several entries may have one name.
type Service struct {
	Name string `yaml:"name"`
	// User is the user's name; or its number, which is valid on this machine only; or "*" for any.
	User string `yaml:"user"`
	// Program is a pattern for the main class of a JVM, or else for the name of the executable.
	Program string `yaml:"program"`
	// Client is a pattern for the part of the DFS client's name that a client can choose.
	Client string `yaml:"client"`
}

// MaxServices is the maximum number of entries.
const MaxServices = 256

// maxUserName is the maximum length of a user's name, in bytes, as in the frames of agents.
const maxUserName = 128

// validateServices adds mistakes to those in doc.
func (w *Weights) validateServices() {
	if len(w.Services) > MaxServices {
		w.doc.Add("", fmt.Errorf("%d services: use at most %d", len(w.Services), MaxServices), "services")
		return
	}
	first := map[Service]int{}
	for i := range w.Services {
		s := &w.Services[i]
		fail := func(err error, field ...any) {
			w.doc.Add(fmt.Sprintf("service %d: ", i+1), err, append([]any{"services", i}, field...)...)
		}
		if err := checkName(s.Name); err != nil {
			fail(err, "name")
		}
		if s.User == "" {
			fail(errors.New(`give user, the name of the user that the service runs as, or "*" for any user`))
		} else if err := checkUser(s.User); err != nil {
			fail(err, "user")
		} else if s.User == identity.AnyUser && s.Program == "" && s.Client == "" {
			fail(errors.New(`user "*" alone would match every process outside of containers: give program or client as well`), "user")
		}
		for _, p := range []struct{ field, pattern string }{{"program", s.Program}, {"client", s.Client}} {
			if _, err := path.Match(p.pattern, ""); err != nil || len(p.pattern) > policy.MaxPattern {
				fail(fmt.Errorf("%s: pattern %.60q: use at most %d bytes, with * ? and [abc]", p.field, p.pattern, policy.MaxPattern), p.field)
			}
		}
		conditions := *s
		conditions.Name = ""
		if by, same := first[conditions]; same {
			fail(fmt.Errorf("the entry on line %d has the same conditions and comes first: delete one of them", w.doc.Line("services", by)))
		} else {
			first[conditions] = i
		}
	}
}

// serviceWarnings returns a line for each entry that an earlier one with another name hides, because all its
// conditions are among those of the later one.
func (w *Weights) serviceWarnings() (all []string) {
	for i, s := range w.Services {
		for j, first := range w.Services[:i] {
			if first.Name == s.Name || first.User != s.User && first.User != identity.AnyUser ||
				first.Program != s.Program && first.Program != "" || first.Client != s.Client && first.Client != "" {
				continue
			}
			line, column := w.doc.Place(fmt.Sprintf("services[%d]", i))
			what := fmt.Sprintf("service %s: the entry on line %d matches everything that this one matches, and comes first", s.Name, w.doc.Line("services", j))
			all = append(all, settings.Mistake{Line: line, Column: column, What: what}.String())
			break
		}
	}
	return all
}

// checkUser checks the name of a service's user.
func checkUser(name string) error {
	switch {
	case len(name) > maxUserName || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("user %.60q: use at most %d bytes without control characters", name, maxUserName)
	case identity.ShortName(name) != name:
		return fmt.Errorf("user %q: give the user's short name, %q", name, identity.ShortName(name))
	case name != identity.AnyUser && strings.ContainsAny(name, "*?[,"):
		return fmt.Errorf(`user %q: give one user's name, or "*" for any user; give further users entries of their own, with the same name`, name)
	}
	return nil
}

// IdentityRules returns the rules of named services for the checker of identities.
func (w *Weights) IdentityRules() []identity.Rule {
	rules := make([]identity.Rule, 0, len(w.Services))
	for _, s := range w.Services {
		rules = append(rules, identity.Rule(s))
	}
	return rules
}
