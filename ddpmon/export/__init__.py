"""What leaves ddpmon for other eyes and tools: the report."""
