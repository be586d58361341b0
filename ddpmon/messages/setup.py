"""Training setup that a rank reads from the script's DataLoaders, models and optimizers. A part of Hello.

The decoder checks ranges too, by the annotations here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ddpmon.messages.vocabulary import MAX_NAME, MAX_STEP, MAX_US, MAX_WORLD

MAX_LOADERS = MAX_MODELS = MAX_PARAMETER_NAMES = 4
"""Most loaders, models and parameter names that a rank reports."""
MAX_REPEATS = 3
"""Passes are counted so far: a count that went on would be told anew after each of them."""
MAX_CORES = 4096
SEED_VARIES = -1
"""Replaces a seed that changes with each pass: ranks begin passes at different moments, so it cannot be compared."""
DISTRIBUTED_SAMPLER = "DistributedSampler"
ANOMALY, DETAIL, LAUNCH_BLOCKING = "detect_anomaly", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "CUDA_LAUNCH_BLOCKING=1"
DEBUG_MODES = (ANOMALY, DETAIL, LAUNCH_BLOCKING)
"""Switches that help to find a fault and make each step slower."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_STEP)]
World = Annotated[int, msgspec.Meta(ge=0, le=MAX_WORLD)]
Repeats = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPEATS)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
Names = Annotated[list[Name], msgspec.Meta(max_length=MAX_PARAMETER_NAMES)]
Cores = Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=MAX_CORES)]], msgspec.Meta(max_length=MAX_CORES)]


class Loader(msgspec.Struct, array_like=True):
    """A DataLoader that a rank trains from, as its latest pass began."""

    workers: World = 0
    persistent: bool = False
    """True if its workers live on from one pass to the next."""
    batches: Count = 0
    """That a pass has; 0: not known."""
    sampler: Name = ""
    """DISTRIBUTED_SAMPLER itself; "": any other, of which the fields below are not read."""
    replicas: Count = 0
    rank: Count = 0
    seed: Annotated[int, msgspec.Meta(ge=SEED_VARIES, lt=MAX_US)] = 0
    shuffle: bool = False
    samples: Count = 0
    """Samples of all ranks in a pass."""
    repeats: Repeats = 0
    """Passes in a row that trained and had the order of the pass before them."""
    seed_repeats: Repeats = 0
    """The same of passes whose workers began with the seeds of the pass before."""
    again: bool = False
    """True if an earlier pass over the same data trained and came to its end."""


class Model(msgspec.Struct, array_like=True):
    """A DDP model, its parameters beside those of the optimizers, and what looking for unused ones takes."""

    number: World
    """Counts the models of a rank in the order they were wrapped."""
    ranks: World = 0
    """In its process group."""
    parameters: Count = 0
    """That DDP reduces."""
    stepped: Count = 0
    """Parameters of these that are in an optimizer which steps."""
    idle: Names = []
    """Names of the first ones that are in no optimizer."""
    idle_count: Count = 0
    unreduced: Names = []
    """Names of the first parameters that an optimizer updates and DDP does not reduce: they were frozen when it was
    made, or were made later."""
    unreduced_count: Count = 0
    search_us: Count = 0
    """Time to look for unused parameters in a backward; 0: DDP does not."""
    searches: Count = 0
    """Backward calls whose unused parameters were counted."""
    unused: Count = 0
    """The most that any of them left unused on some rank."""
    joins: bool = False
    """True if it trains under torch's Join, which provides for ranks that have fewer batches."""


class Setup(msgspec.Struct, array_like=True):
    """Training setup of a script, as its objects showed at the first step and since."""

    loaders: Annotated[list[Loader], msgspec.Meta(max_length=MAX_LOADERS)] = []
    models: Annotated[list[Model], msgspec.Meta(max_length=MAX_MODELS)] = []
    reductions: Count = 0
    """Number of reductions of the only DDP model's gradients between two updates; 0: not known."""
    debugging: Annotated[list[Name], msgspec.Meta(max_length=len(DEBUG_MODES))] = []
    """DEBUG_MODES that are on."""
    cores: Cores = []
    """The cores that the training thread may run on, by their numbers; none: not known."""
    worker_cores: Cores = []
    """Cores that the workers of its DataLoaders may run on."""
