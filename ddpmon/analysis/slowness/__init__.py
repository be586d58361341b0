"""Detects slowdowns in a stream of steps, and describes them with their ranks, pattern and cost."""
