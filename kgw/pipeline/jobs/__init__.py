"""Jobs on archives and topics; each is a function that passes units of work to a runner.

`running` has the runners: in Spark, or in this process. A unit's work is a plain function of its
arguments. Its files belong to the archive only after the driver commits them, so a unit may run
twice.
"""
