"""Chores of a data platform, each a function that is given what runs its units.

`running` has Spark do it. A unit's work is a plain function; what it makes counts only when the
driver has committed it, so that a unit may be worked on twice.
"""
