"""State of a run at one moment: its processes, their steps, samples and histories, and the view of them."""
