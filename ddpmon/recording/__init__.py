"""Writes, reads, merges, salvages and replays a run's recording, the SQLite file telemetry.db."""
