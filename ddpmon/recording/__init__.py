"""telemetry.db: how what ranks send is taken in and written, how it is thinned, read, salvaged and played."""
