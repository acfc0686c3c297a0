"""Metrics over OTLP, to an OpenTelemetry collector or whatever else takes them.

`points` makes a request of the table of metrics (pure), `post` sends it, `exporter` says when, in
which thread, and what is told of failures. Nothing of this is imported unless `kgw.otel.endpoint`
is set.
"""
