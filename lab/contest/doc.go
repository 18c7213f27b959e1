// Package contest has the common parts of experiments in which several jobs of a real Hadoop share
// modelled disks: the disks' set-up, the jobs with their inputs and the checks of their outputs, and
// the independent judge.
//
// A job's output must be right in every experiment, because a scheduler that loses data could be
// fast. So each input is written by this project, and each output is compared with the one that
// follows from the input. The judge uses the modelled disks' request logs and the extents of files
// (package judge), and nothing that Penstock reports.
package contest
