"""The recording telemetry.db: writes the ranks' messages to it, merges its old rows, reads it, salvages it and replays
it.
"""
