"""Statistics of arrays, and estimates of what chance alone explains: excess over peers, resampling, trends."""
