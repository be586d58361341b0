"""Which ranks are slow: slowdowns are detected in a stream of steps, then described with their pattern and cost."""
