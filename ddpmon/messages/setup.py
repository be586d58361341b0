"""Training setup that a rank reads from the script's DataLoaders, models and optimizers. The setup is a part of Hello.

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
"""Replaces a seed that changes with each pass. Such seeds cannot be compared, because ranks begin passes at different
moments."""
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
    """DISTRIBUTED_SAMPLER if the sampler's class is exactly DistributedSampler, else "". The fields from `replicas` to
    `samples` are read from a DistributedSampler only."""
    replicas: StepCount = 0
    rank: StepCount = 0
    seed: Annotated[int, Meta(ge=SEED_VARIES, lt=MAX_US)] = 0
    shuffle: bool = False
    samples: StepCount = 0
    """Number of samples in a pass, over all ranks."""
    repeats: Repeats = 0
    """Number of successive training passes that had the same order of samples as the pass before."""
    seed_repeats: Repeats = 0
    """Number of successive training passes whose workers began with the same seeds as in the pass before."""
    again: bool = False
    """True if an earlier training pass over the same data was completed."""


class Model(msgspec.Struct, array_like=True):
    """A DDP model: which of its parameters the optimizers update, and what its search for unused parameters costs."""

    number: WorldSize
    """Number of the model. A rank counts its models in the order in which they were wrapped."""
    ranks: WorldSize = 0
    """Number of ranks in its process group."""
    parameters: StepCount = 0
    """Number of parameters that DDP reduces."""
    stepped: StepCount = 0
    """Number of the parameters that DDP reduces and that belong to an optimizer that takes steps."""
    idle: Names = []
    """Names of the first parameters that DDP reduces but no optimizer contains."""
    idle_count: StepCount = 0
    unreduced: Names = []
    """Names of the first parameters that an optimizer updates and DDP does not reduce, because they were frozen when
    the model was wrapped, or were created later."""
    unreduced_count: StepCount = 0
    search_us: StepCount = 0
    """Time in µs that DDP spends in a backward on the search for unused parameters, or 0 if DDP does not search."""
    searches: StepCount = 0
    """Number of backward calls whose unused parameters were counted."""
    unused: StepCount = 0
    """Largest number of unused parameters in any of these backward calls on any rank."""
    joins: bool = False
    """True if the model trains under torch's Join, which allows ranks to have fewer batches."""


class Setup(msgspec.Struct, array_like=True):
    """Training setup of a script, read from its objects at the first step and since then."""

    loaders: Annotated[list[Loader], Meta(max_length=MAX_LOADERS)] = []
    models: Annotated[list[Model], Meta(max_length=MAX_MODELS)] = []
    reductions: StepCount = 0
    """Number of times that the gradients of the only DDP model are reduced between two optimizer updates, or 0 if
    unknown."""
    debugging: Annotated[list[Name], Meta(max_length=len(DEBUG_MODES))] = []
    """Names of the DEBUG_MODES that are switched on."""
    cores: CoreNumbers = []
    """Numbers of the cores on which the training thread may run, or empty if unknown."""
    worker_cores: CoreNumbers = []
    """Numbers of the cores on which the workers of the script's DataLoaders may run."""
