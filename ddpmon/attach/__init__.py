"""Attaches ddpmon to a job that was started without it. Standard library only.

ddpmon enters each rank: it makes the running process execute Python code, which arms the probe.

before   jobs (finds the processes that train together, from /proc), obstacles (why a process cannot be entered)
into it  symbols (addresses of functions in its memory), entry (makes a process run Python code), texts (that code)
the run  start (makes a run of a job), supervisor with entries (all ranks at once), stacks (stack of a rank that does
not answer), ending (the job's exit code), output (where the job prints), waiting (follows the supervisor
         until the ranks are entered), detach
"""
