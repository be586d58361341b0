"""Runs on other machines, over the system's own ssh: nothing listens, nothing is forwarded.

here                                              there
dashboard ── Source ── ssh -T HOST ══ login ══ ddpmon _relay RUN ── Source ── hub or recording
command line ──────── ssh -T HOST ══ login ══ ddpmon _there status RUN

address    what USER@HOST:RUN means, and the command line that reaches it
ssh_line   one ssh and what it says: from the login to the first word from there, and why it ended
channel    the messages of both sides, and how they are framed
relay      the far side: a source that is passed on
source     the near side: a source whose run is elsewhere
place      the runs of the other machine
remote_command  any other command, run there
"""
