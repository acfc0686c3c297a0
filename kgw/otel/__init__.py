"""Exports metrics over OTLP to an OpenTelemetry collector or any other receiver.

`points` encodes the table of metrics as a request (pure), `post` sends it, and `exporter` schedules
exports, runs them in a thread and logs their failures. These modules are imported only if
`kgw.otel.endpoint` is set.
"""
