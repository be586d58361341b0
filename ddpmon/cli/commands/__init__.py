"""The commands: every command in a file of this folder is one of ddpmon's."""
