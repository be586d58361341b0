"""telemetry.db: takes in and writes what ranks send; thins, reads, salvages and plays it."""
