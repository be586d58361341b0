"""Runs on other machines, over the system's own ssh: nothing listens, nothing is forwarded.

here                                              there
dashboard ── Source ── ssh -T HOST ══ login ══ ddpmon _relay RUN ── Source ── hub or recording
command line ──────── ssh -T HOST ══ login ══ ddpmon _there status RUN

address    parses USER@HOST:RUN, and builds the command line that reaches it
ssh_line   runs one ssh, from the login to the reason of its end
channel    defines the messages of both sides, and their frames
relay      is the far side: it forwards a source over the line
source     is the near side: a source whose run is on another machine, and the other runs there
remote_command  runs any other command on the other machine
"""
