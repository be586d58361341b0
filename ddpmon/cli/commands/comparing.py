"""ddpmon diff: compares two runs, for example to see whether a fix helped."""

from __future__ import annotations

import json

import click

from ddpmon import runs
from ddpmon.cli.options import Within, run_argument
from ddpmon.cli.streams import prose_columns
from ddpmon.errors import DdpmonError, UsageError


@click.command()
@run_argument("a")
@run_argument("b", required=False)
@click.option(
    "--fail-slower",
    type=Within(0, 1_000_000),
    metavar="PCT",
    help="Exit with code 1 if B is slower than A by more than PCT percent, at the lower end of the 95% interval.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]), default="text", show_default=True)
def diff(a: str, b: str | None, fail_slower: float | None, form: str) -> int:
    """Compare two runs, for example before and after a fix.

    The comparison shows whether run B is faster than run A, by how much, with what certainty, and why. A and B are run
    names or the beginnings of run ids. The default for B is the latest run.

    ddpmon compares the median and the mean step time of the two runs, without the warm-up. If the runs differ in
    samples or tokens per step, ddpmon compares samples or tokens per second instead. ddpmon compares losses at the same
    step, or after the same number of samples; each is the mean of the last 20 steps and of all ranks. The 95%
    confidence interval accounts for random variation within each run. The interval does not account for differences
    between two runs of the same script, such as another machine.

    \b
    Exit codes:
      0   compared
      1   with --fail-slower: the median or mean step of B is over PCT%
          slower, even at the fast end of the interval
      2   the two runs cannot be compared
    """
    from ddpmon import comparison
    from ddpmon.export import diff as diffs

    try:
        first, second = runs.find(a), runs.find(b)
        if b is None and first.id == second.id:
            raise UsageError(f"diff needs two runs, and {a} is the latest run itself ({first.id}); give a second run")
        made = comparison.build(first, second)
    except UsageError:
        raise
    except DdpmonError as error:  # Exit code 1 would mean that B is slower.
        raise UsageError(str(error)) from None
    if form == "json":
        print(json.dumps(made, indent=1))
    else:
        print(diffs.text(made, prose_columns()) if form == "text" else diffs.text_markdown(made))
    if fail_slower is None:
        return 0
    passed, sentence = diffs.gate(made, fail_slower)
    if form != "json":
        print(f"\n{sentence}")
    return int(not passed)
