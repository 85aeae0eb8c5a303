"""Stored spans → OTLP, for any endpoint that takes it."""
