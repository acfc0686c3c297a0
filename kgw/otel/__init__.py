"""Exports metrics over OTLP to an OpenTelemetry collector or another receiver.

`points` encodes the metrics as a request, `post` sends it, and `exporter` schedules exports, runs
them in a thread and logs failures. These modules are imported only if `kgw.otel.endpoint` is set.
"""
