"""One process per run: collects telemetry, keeps and records it, serves viewers."""
