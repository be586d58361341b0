"""The state of a run at one moment: its processes, their steps, samples and histories, and the snapshot of them."""
