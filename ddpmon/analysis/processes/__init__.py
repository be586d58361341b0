"""The processes and devices of ranks, beside their steps: how they start, hang and fail, and under which conditions."""
