"""The request handlers, one module per API. Only this package uses both messages and services."""
