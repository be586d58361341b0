"""Data of every rank over the whole run, in bounded memory."""
