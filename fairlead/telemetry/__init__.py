"""Where telemetry goes: what the environment asks for, OTLP, Prometheus, log lines.

    actors/telemetry  counts, and spans by OpenTelemetry's API
      exports         every process of a fleet: providers and exporters, as the `OTEL_*` variables say
      fleet_metrics   the process of `fairlead run`: the Prometheus endpoint, and what is read from the stores

Read in this order:
    otel_environment  what the environment asks for
    exports           one process's exporters, and the metrics that they are fed with
    otel_sdk          OpenTelemetry's SDK, loaded only where something is to be exported
    otel_metrics      counts as OpenTelemetry's metrics
    fleet_metrics     what is told of the fleet as a whole
    prometheus        the endpoint, loaded only where a port is set
    logs              log lines that name their job
"""

from fairlead.actors.telemetry.tenants import tenant_hash

__all__ = ["tenant_hash"]
