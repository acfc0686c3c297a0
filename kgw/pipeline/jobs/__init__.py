"""Jobs on archives and topics; each is a function that takes a runner for its units.

`running` has the runner that uses Spark. The work of a unit is a plain function. Its files become
part of an archive only when the driver commits them, so that a unit may run twice.
"""
