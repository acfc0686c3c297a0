"""A directory on the search path of Spark's planner, which loads every `pyspark_*` in it."""
