"""Telemetry: what is counted, and which spans there are."""
