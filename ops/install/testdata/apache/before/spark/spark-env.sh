# This file is sourced when running various Spark programs.
