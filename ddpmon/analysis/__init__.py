"""Pure functions from step records to sentences and reports. No I/O, no clock of its own.

    records ──alignment──▶ rows of one step ──clocks, waits──▶ World ──window──▶ summary, what_if, findings, report

Each kind of finding is one file in `kinds`. It detects the problem, words it, and gives the advice.

A window keeps sums of its steps for means, so that an update costs its new steps.

Arrays are [steps x ranks]; `_ms` are milliseconds. Words and formulas: POP Centre efficiencies
(co-design.pop-coe.eu/metrics) with own time as the useful one; what-if by replaying steps with one rank's own time
replaced (the idea of "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25).
"""
