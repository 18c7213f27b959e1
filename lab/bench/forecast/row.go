package forecast

import "slices"

// Kinds of jobs.
const (
	wordCount = "wordcount"
	teraSort  = "terasort"
	sorting   = "sort"
	query     = "query"
	bayes     = "bayes"
	kMeans    = "kmeans"
)

var titles = map[string]string{wordCount: "WordCount", teraSort: "TeraSort", sorting: "Sort", query: "Spark SQL query", bayes: "Bayes", kMeans: "K-means"}

// onSpark reports whether a job runs on Spark and not on MapReduce.
func onSpark(job string) bool { return job == query || job == bayes || job == kMeans }

// Row is what one turn measures: the forecasts for a job beside the background, or a job's profile.
type Row struct {
	Name    string `json:"name"`
	Job     string `json:"job"`
	Profile bool   `json:"profile,omitempty"`
	Changed bool   `json:"changed,omitempty"` // the weights change at Setup.ChangeAt
}

// Foreseen are the jobs of the forecasts; Profiled are those of Table II, in its order. The paper's Hive query is one of
// Spark SQL here.
var (
	Foreseen = []string{wordCount, teraSort, query}
	Profiled = []string{sorting, teraSort, wordCount, query, bayes, kMeans}
)

// Names of rows besides the jobs' own names.
const (
	changedSuffix = "-changed"
	profilePrefix = "profile-"
)

// rows are all rows, in the order in which they are measured.
var rows = func() (all []Row) {
	for _, job := range Foreseen {
		all = append(all, Row{Name: job, Job: job}, Row{Name: job + changedSuffix, Job: job, Changed: true})
	}
	for _, job := range Profiled {
		all = append(all, Row{Name: profilePrefix + job, Job: job, Profile: true})
	}
	return all
}()

// Rows returns the names of all rows.
func Rows() (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

// rowOf returns the row with a name that Rows has returned.
func rowOf(name string) Row {
	return rows[slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })]
}
