"""Attaches ddpmon to a job that was started without it. Standard library only.

ddpmon enters each rank: it makes the running process execute Python code, which arms the probe.

before   jobs (finds the processes that train together, from /proc), obstacles (why a process cannot be entered)
into it  symbols (addresses of functions in its memory), process_entry (makes a process run Python code), probe_code
         (that code)
the run  start (makes a run of a job), supervisor with rank_entries (all ranks at once), stacks (stack of a rank that
         does not answer), log_notes (where the job prints), waiting (follows the supervisor until the ranks are
         entered, or the probe is removed)
"""
