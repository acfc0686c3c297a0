"""A directory of its own on the search path of Spark's planner, which loads each `pyspark_*`."""
