"""Starting and stopping a run: the supervisor, torchrun's command line, the sweep at the end."""
