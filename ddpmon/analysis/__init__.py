"""Pure functions that turn step records into findings, sentences and reports. They do no I/O and read no clock.

    records ──alignment──▶ rows of one step ──clocks, waits──▶ World ──window──▶ summary, what_if, findings, report

Each kind of finding is one file in `kinds`. It detects the problem, words it, and gives the advice.

A window keeps running sums of its steps, so that means after an update cost only the new steps.

Arrays are [steps x ranks]; `_ms` marks milliseconds. Words and formulas are those of the POP Centre efficiencies
(co-design.pop-coe.eu/metrics), with own time as the useful time. The what-if analysis replays steps with one rank's own
time replaced (the idea of "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25).
"""
