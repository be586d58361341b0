"""Starting and stopping a run: the supervisor, torchrun's command line, the sweep at the end.

before        prepare (from what was asked for to what is started) with spec, torchrun, torchrun_env, slurm, given_hub;
              joining (several `ddpmon exec` of one job), env (what arms the probe), last_launch (the form's)
a start       start, supervisor with life (its states), run_processes, run_file, supervisor_log
beside it     keeper (of the hub), draining and drain (of what ranks print: spool, boundedlog), restarts
a stop        stop, processes (signals), remaining_processes, memory_kills
afterwards    adoption and exit_traces (a run whose supervisor was killed), removal, retention
"""
