"""Lag as it is watched: positions of clients, samples on a schedule, findings, a short history."""
