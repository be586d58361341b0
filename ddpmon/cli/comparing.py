"""ddpmon diff: did the fix help."""

from __future__ import annotations

import click

from ddpmon.cli.options import Within, run_argument


@click.command()
@run_argument("a")
@run_argument("b", required=False)
@click.option(
    "--fail-slower",
    type=Within(0, 1_000_000),
    metavar="PCT",
    help="Exit with 1 if B is slower than A by more than PCT percent with certainty.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]), default="text", show_default=True)
def diff(a: str, b: str | None, fail_slower: float | None, form: str) -> int:
    """Two runs side by side: did the fix help?

    Says whether B is faster than A, by how much, how certainly, and why.

    Each is a run's name or the beginning of its id; without B it is the latest run.

    Compared are the steps of each run once it has settled, by the median step and by the mean; where a step of one
    run has more samples or tokens than the other's, by samples or tokens a second. The 95% interval is about chance
    within each run: how far two runs of the same differ (another machine, its neighbours) it does not know. Losses
    are compared at the same step, or after as many samples.

    Exit code: 0; with --fail-slower 1 if B's median or mean step is slower by more than PCT percent even at the end
    of the interval that is kindest to it; 2 if the two cannot be compared.
    """
    import json

    from ddpmon import comparison, runs
    from ddpmon.errors import DdpmonError, UsageError
    from ddpmon.export import diff as diffs

    try:
        first, second = runs.find(a), runs.find(b)
        if b is None and first.id == second.id:
            raise UsageError(f"{a} is the latest run itself ({first.id}); name the run to compare it with")
        made = comparison.build(first, second)
    except UsageError:
        raise
    except DdpmonError as error:  # 1 would say that B is slower
        raise UsageError(str(error)) from None
    if form == "json":
        print(json.dumps(made, indent=1))
    else:
        print(diffs.text(made) if form == "text" else diffs.text_markdown(made))
    if fail_slower is None:
        return 0
    passed, sentence = diffs.gate(made, fail_slower)
    if form != "json":
        print(f"\n{sentence}")
    return int(not passed)
