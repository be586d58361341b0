"""The recording telemetry.db: code that writes the messages of ranks to it, and thins, reads, salvages and plays it."""
