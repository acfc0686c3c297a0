"""Monitors lag: positions of clients, samples on a schedule, findings, and a short history."""
