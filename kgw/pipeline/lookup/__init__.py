"""A directory for the search path of Spark's planner, which imports each `pyspark_*` in it."""
