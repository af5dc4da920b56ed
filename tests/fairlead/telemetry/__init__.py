"""Where telemetry goes: what the environment asks for, and the Prometheus endpoint."""
