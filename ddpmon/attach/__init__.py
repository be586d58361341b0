"""Attaching to a job that was started without ddpmon: standard library only.

before   jobs (which processes train together, by /proc), obstacles (why one of them cannot be entered)
into it  symbols (functions in its memory), entry (has a process run a text), texts (what it is to run)
the run  start (makes a run of a job), supervisor with entries (all ranks at once), stacks (where ranks stay that do not
         answer), ending (its exit code), output (where it prints), waiting (until the ranks are in), detach
"""
