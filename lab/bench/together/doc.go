// Package together runs several MapReduce jobs at the same time on the same modelled disks, once for
// each way of dividing the disks. The benches shortest and slowdown are rows of such runs.
//
// The disks are small and slow, so a run takes a minute or two, and the start of a job's JVMs would be
// a large part of it. So all tasks are stopped at their first connection to a DataNode (hadoop.Hold)
// until those of all jobs are ready. The disks have no limit until then. A run begins when the tasks
// continue, on disks of the modelled rate. A job's completion is the time from there to the job's end
// as the ResourceManager reports it. A job alone is measured in the same way. The start of reduces is
// part of a run.
//
// All jobs are in one queue of YARN with room for all of their tasks, so YARN's scheduler delays none
// of them. In governed runs, a broker with a policy and a node daemon divide the disks. Each such run
// has new ones, so no run profits from the history of an earlier one.
//
// Only the type Machine works on the real computer. Everything else uses the interface Environment.
package together
