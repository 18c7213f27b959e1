package policy

// Match reports whether a shell pattern (* ? [abc]) matches a name. Unlike path.Match, * also matches slashes, because names
// of applications and of what they run in may contain them. At most MaxValue bytes of a name are matched with a pattern. A
// pattern that is not valid matches nothing.
func Match(pattern, name string) bool { return match(pattern, name) }
