"""Runs on other machines, over the system's own ssh: nothing listens, nothing is forwarded.

here                                              there
dashboard ── Source ── ssh -T HOST ══ login ══ ddpmon _relay RUN ── Source ── hub or recording
command line ──────── ssh -T HOST ══ login ══ ddpmon _there status RUN

address    parses USER@HOST:RUN, and builds the command line that reaches it
ssh_line   runs one ssh, from the login to the reason of its end
channel    defines the messages of both sides, and their frames
relay      forwards a source over the line (the far side, on the run's machine)
source     reads a run and the list of runs of the other machine (the near side, in the dashboard)
remote_command  runs any other command on the other machine
"""
