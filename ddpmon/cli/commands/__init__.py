"""The commands: every click command in a file of this folder becomes a command of ddpmon."""
