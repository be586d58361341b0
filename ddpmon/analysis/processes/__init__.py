"""What processes and devices of ranks show besides steps: how they start, stand, fail, and under which conditions."""
