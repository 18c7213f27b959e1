// Package deploy holds the files that are copied to machines as they are.
//
// They lie here, and not in the package that writes them, because an operator who
// manages machines with other means copies them from here by hand. What embeds
// them into the binary is all this package does.
package deploy

import _ "embed"

// ShellProfile is shellprofile.d/penstock.sh, with the paths of the agent's jar and
// the daemon's socket that install.md proposes.
//
//go:embed shellprofile.d/penstock.sh
var ShellProfile string
