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
    help="Exit with 1 if B is certainly more than PCT percent slower than A.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]), default="text", show_default=True)
def diff(a: str, b: str | None, fail_slower: float | None, form: str) -> int:
    """Compare two runs: did the fix help?

    Says whether B is faster than A, by how much, how certainly, and why. A and B are names of runs or beginnings of
    their ids; without B, the latest run is B.

    The comparison takes the median and the mean step of each run once it has settled. If the steps of one run have more
    samples or tokens, it takes samples or tokens per second. It takes losses at the same step, or after the same number
    of samples. The 95% interval covers chance within each run. It does not cover what differs between two runs of the
    same script, such as another machine.

    \b
    Exit codes:
      0   compared
      1   with --fail-slower: B's median or mean step is more than PCT percent
          slower, even at the fast end of the interval
      2   the two runs cannot be compared
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
