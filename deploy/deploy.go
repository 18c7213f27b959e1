// Package deploy has the files that are copied to machines unchanged.
//
// They are here, and not in the package that writes them, so that operators who manage machines by
// other means can copy them by hand. This package only embeds them into the binary.
package deploy

import _ "embed"

// ShellProfile is shellprofile.d/penstock.sh, with the paths of the agent's jar and the daemon's
// socket as in install.md.
//
//go:embed shellprofile.d/penstock.sh
var ShellProfile string
