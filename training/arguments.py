"""Parse the arguments that the scripts share, and find this process's rank and world size."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

import faults


class Parser(argparse.ArgumentParser):
    """An argument parser that prints only one line for an error, because every rank prints it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser(description: str, *, batch_size: int) -> Parser:
    """Make a parser with the arguments of every script. `batch_size` is the default number of samples per rank."""
    made = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--batch-size", type=positive, default=batch_size, help="samples per rank and step (%(default)s)")
    made.add_argument("--seed", type=int, default=0, help="seed for weights and shuffling (%(default)s)")
    by_hand = made.add_argument_group("start by hand, in one shell per rank")
    by_hand.add_argument("--world_size", "--world-size", type=positive, metavar="N", help="number of ranks")
    by_hand.add_argument("--rank", type=int, metavar="K", help="rank of this process, from 0")
    faults.add_arguments(made)
    return made


def training_parser(description: str, *, epochs: int, batch_size: int, lr: float) -> Parser:
    """Make the parser of a script that trains with loop.py.

    Args:
        description: Help text of the script.
        epochs: Default number of epochs.
        batch_size: Default number of samples per rank.
        lr: Default learning rate for one rank.

    """
    made = parser(description, batch_size=batch_size)
    made.add_argument("--epochs", type=positive, default=epochs, help="passes over the data (%(default)s)")
    made.add_argument("--lr", type=float, default=lr, help="learning rate of one rank (%(default)s)")
    made.add_argument("--workers", type=not_negative, default=0, help="DataLoader workers per rank (%(default)s)")
    made.add_argument("--save", type=Path, metavar="PATH", help="write the trained weights to PATH")
    stopping = made.add_argument_group("checkpoints (Ctrl-C or SIGTERM writes one; the same command continues from it)")
    checkpoint = Path("checkpoints", Path(sys.argv[0]).stem + ".pt")
    stopping.add_argument("--checkpoint", type=Path, default=checkpoint, metavar="PATH", help="(%(default)s)")
    stopping.add_argument("--fresh", action="store_true", help="ignore a checkpoint and start from the beginning")
    return made


def add_data(made: argparse.ArgumentParser) -> None:
    """Add the argument for the folder of downloaded datasets."""
    folder = Path(__file__).parent / "data" / "downloads"
    made.add_argument("--data", type=Path, default=folder, metavar="FOLDER", help="folder for downloads (%(default)s)")


def parse(made: Parser) -> argparse.Namespace:
    """Parse the command line, and add rank, local_rank, world_size and local_world_size from it or the launcher."""
    args = made.parse_args()
    if "RANK" in os.environ:
        if args.rank is not None or args.world_size is not None:
            made.error("--rank and --world_size are for a start by hand; here a launcher has set them")
        args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    else:
        args.world_size = args.world_size or 1
        if args.rank is None and args.world_size > 1:
            made.error(f"--world_size {args.world_size} needs --rank, from 0 to {args.world_size - 1}")
        args.rank = args.rank or 0
        if not 0 <= args.rank < args.world_size:
            made.error(
                f"--rank {args.rank}: choose from 0 to {args.world_size - 1}, as --world_size is {args.world_size}"
            )
    args.local_rank = int(os.environ.get("LOCAL_RANK", args.rank))
    args.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size))
    for name in ("save", "checkpoint"):
        if path := getattr(args, name, None):
            # Fail before the training. After it, the result of an hour of work could not be saved.
            folder = next(parent for parent in path.absolute().parents if parent.exists())
            if not (folder.is_dir() and os.access(folder, os.W_OK)):
                made.error(f"argument --{name}: cannot write to {folder}, choose another path")
    faults.check(made, args)
    return args


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """Parse a whole number of 0 or more."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
    return int(text)
