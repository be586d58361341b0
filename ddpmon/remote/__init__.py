"""Shows runs on other machines over the system's own ssh. ddpmon opens no port, and ssh forwards none.

here                                              there
dashboard ── Source ── ssh -T HOST ══ login ══ ddpmon _relay RUN ── Source ── hub or recording
command line ──────── ssh -T HOST ══ login ══ ddpmon _there status RUN

address    parses USER@HOST:RUN, and builds the command line that reaches it
ssh_line   runs one ssh connection, from the login to the reason why it ended
channel    defines the messages that the two machines exchange, and their frames
relay      forwards a source over the connection (runs on the run's machine)
source     reads a run and the list of runs of the other machine (runs in the dashboard)
remote_command  runs any other command on the other machine
"""
