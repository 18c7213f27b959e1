package play

import "testing"

// An operator's edits survive the next job.
func TestEditedWeightsStay(t *testing.T) {
	text := renameRule(firstWeights, "", "application_1_0001", 32, "WordCount")
	text = renameRule(text, "", "application_1_0002", 1, "TeraGen")
	edited := "# mine\ndefault: 3\nrules:\n  - {application: application_1_0002, weight: 1} # TeraGen\n  - {application: application_1_0001, weight: 7}\n"
	for _, c := range []struct{ text, want string }{
		{text, "# Change weights here: they are in force as soon as the file is saved.\n# penstock-lab play replaces the ids when a job ends and the next one starts.\n" +
			"default: 1\nrules:\n  - {application: application_1_0002, weight: 1} # TeraGen\n  - {application: application_1_0003, weight: 32} # WordCount\n  - {flow: clients, weight: 1}\n"},
		{edited, "# mine\ndefault: 3\nrules:\n  - {application: application_1_0002, weight: 1} # TeraGen\n  - {application: application_1_0003, weight: 7}\n"},
		{"default: 1\n", "default: 1\n"}, // the rule was removed, and stays removed
	} {
		if got := renameRule(c.text, "application_1_0001", "application_1_0003", 32, "WordCount"); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
}
