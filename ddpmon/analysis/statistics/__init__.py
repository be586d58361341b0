"""Arrays and what chance alone explains: excess over peers, change points, resampling."""
