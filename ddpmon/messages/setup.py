"""Training setup that a rank reads from the script's DataLoaders, models and optimizers: a part of Hello.

The decoder checks the ranges that the annotations declare.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_US, Name, StepCount, WorldSize

MAX_LOADERS = MAX_MODELS = MAX_PARAMETER_NAMES = 4
"""Largest number of loaders, of models and of parameter names that a rank reports."""
MAX_REPEATS = 3
"""Largest reported count of repeated passes. Without this limit, each pass would change Hello and cause a resend."""
MAX_CORE_NUMBERS = 4096
SEED_VARIES = -1
"""Replaces a seed that changes with each pass, which cannot be compared as ranks begin passes at different moments."""
DISTRIBUTED_SAMPLER = "DistributedSampler"
ANOMALY, DETAIL, LAUNCH_BLOCKING = "detect_anomaly", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "CUDA_LAUNCH_BLOCKING=1"
DEBUG_MODES = (ANOMALY, DETAIL, LAUNCH_BLOCKING)
"""Debugging switches that make each step slower."""

Repeats = Annotated[int, Meta(ge=0, le=MAX_REPEATS)]
Names = Annotated[list[Name], Meta(max_length=MAX_PARAMETER_NAMES)]
CoreNumbers = Annotated[list[Annotated[int, Meta(ge=0, lt=MAX_CORE_NUMBERS)]], Meta(max_length=MAX_CORE_NUMBERS)]


class Loader(msgspec.Struct, array_like=True):
    """A DataLoader from which a rank trains, as configured when its latest pass began."""

    workers: WorldSize = 0
    persistent: bool = False
    """True if its workers live on from one pass to the next."""
    batches: StepCount = 0
    """Number of batches in a pass, or 0 if unknown."""
    sampler: Name = ""
    """DISTRIBUTED_SAMPLER if the sampler is exactly that class, else "". `replicas` to `samples` are read of that
    sampler only."""
    replicas: StepCount = 0
    rank: StepCount = 0
    seed: Annotated[int, Meta(ge=SEED_VARIES, lt=MAX_US)] = 0
    shuffle: bool = False
    samples: StepCount = 0
    """Number of samples of all ranks in a pass."""
    repeats: Repeats = 0
    """Number of successive training passes that had the order of the pass before them."""
    seed_repeats: Repeats = 0
    """Number of successive training passes whose workers began with the seeds of the pass before them."""
    again: bool = False
    """True if an earlier training pass over the same data was completed."""


class Model(msgspec.Struct, array_like=True):
    """A DDP model: its parameters compared with those of the optimizers, and its search for unused parameters."""

    number: WorldSize
    """Number of the model. A rank counts its models in the order in which they were wrapped."""
    ranks: WorldSize = 0
    """Number of ranks in its process group."""
    parameters: StepCount = 0
    """Number of parameters that DDP reduces."""
    stepped: StepCount = 0
    """Number of these parameters that belong to an optimizer that takes steps."""
    idle: Names = []
    """Names of the first of these parameters that are in no optimizer."""
    idle_count: StepCount = 0
    unreduced: Names = []
    """Names of the first parameters that an optimizer updates and DDP does not reduce, because they were frozen when
    the model was wrapped, or were created later."""
    unreduced_count: StepCount = 0
    search_us: StepCount = 0
    """Time that DDP spends in a backward on the search for unused parameters, or 0 if it does not search."""
    searches: StepCount = 0
    """Number of backward calls whose unused parameters were counted."""
    unused: StepCount = 0
    """Largest number of unused parameters that any of these calls left on some rank."""
    joins: bool = False
    """True if the model trains under torch's Join, which allows ranks to have fewer batches."""


class Setup(msgspec.Struct, array_like=True):
    """Training setup of a script, read from its objects at the first step and since then."""

    loaders: Annotated[list[Loader], Meta(max_length=MAX_LOADERS)] = []
    models: Annotated[list[Model], Meta(max_length=MAX_MODELS)] = []
    reductions: StepCount = 0
    """How often the gradients of the only DDP model are reduced between two updates, or 0 if unknown."""
    debugging: Annotated[list[Name], Meta(max_length=len(DEBUG_MODES))] = []
    """DEBUG_MODES that are switched on."""
    cores: CoreNumbers = []
    """Numbers of the cores on which the training thread may run, or empty if unknown."""
    worker_cores: CoreNumbers = []
    """Numbers of the cores on which the workers of its DataLoaders may run."""
