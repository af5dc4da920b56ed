"""Exports of telemetry: as the environment configures them, and the Prometheus endpoint."""
