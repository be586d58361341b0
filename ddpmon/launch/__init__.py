"""Starts, supervises and stops runs: the supervisor, torchrun's command line, and the end of all processes.

before a start  prepare and spec check a request; torchrun and node_environment build the command;
                given_hub checks --hub; probe_environment loads the probe; joining lets several `ddpmon exec` share a
                run; last_launch stores the launch form
the start       start, supervisor and its base, supervising (the supervisor detaches)
during the run  run_file (run.json), kept_process (restarts hub and drain),
                drain with spool and boundedlog (the output of ranks)
a stop          stop, life (the states of a run's end), processes (signals), run_processes
afterwards      adoption and exit_traces (a run whose supervisor was killed), removal
"""
