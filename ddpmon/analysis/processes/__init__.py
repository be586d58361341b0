"""Processes and devices of ranks, besides their steps: how they start, stand, fail, and under which conditions."""
