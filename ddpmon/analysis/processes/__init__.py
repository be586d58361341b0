"""The processes and devices of ranks: how they start, hang and fail, and under which conditions they run."""
