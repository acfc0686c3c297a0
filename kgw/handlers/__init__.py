"""The only code that knows both messages and services: one module an API."""
