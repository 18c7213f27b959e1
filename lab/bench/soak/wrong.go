package soak

import "penstock/lab/daemon"

// badFrame returns invalid data, after which the daemon must close the connection. data is a data
// directory that the sender may register.
func badFrame(variant int, data string) (daemon.Bad, error) {
	all, err := daemon.BadFrames(data)
	if err != nil {
		return daemon.Bad{}, err
	}
	return all[variant%len(all)], nil
}

// weightsText is one content of the weights file.
type weightsText struct {
	name, text string
	refused    bool // the daemon must refuse the text and keep its weights
}

// goodWeights gives the probe precedence over the load, so that it does not wait for other
// applications' turns.
const goodWeights = "default: 1\nrules:\n- {application: \"application_1700000000000_*\", weight: 1000}\n"

var weightsTexts = []weightsText{
	{"other weights", "default: 3\nrules:\n- {application: \"application_*\", weight: 100000}\n- {flow: clients, weight: 1}\n", false},
	{"observe", "mode: observe\n", false},
	{"no YAML", "default: [1\n\x00\x01", true},
	{"an unknown field", "defualt: 5\n", true},
	{"a weight out of range", "default: 1\nrules:\n- {flow: clients, weight: -4}\n", true},
	{"empty", "", false},
	{"an invalid pattern", "rules:\n- {flow: \"[\", weight: 4}\n", true},
}

func badWeights(variant int) weightsText { return weightsTexts[variant%len(weightsTexts)] }
