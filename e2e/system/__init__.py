"""The whole system in one test: gateways, clients in five languages, Spark, Prometheus.

`services` is the table of everything that runs and `site` says where it is; `processes` starts it
on this machine, and `e2e/compose.yaml` in containers. `agent` stands between a service and the
test, `driver` speaks with it. `workers` lead clients through `story`, which notes what they saw as
`evidence`; `checks` are the rules of the `verdict`. `runner` puts that together for both.
"""
