"""Detect and describe slowdowns: which ranks, since when, in which pattern, and what they cost."""
