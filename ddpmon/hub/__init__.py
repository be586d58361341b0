"""The hub: one process per run that collects and records telemetry and serves viewers."""
