"""A name stands for one thing: what shares the name of a file or a class means the same, and says in which way."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import ddpmon

ROOT = Path(ddpmon.__file__).parent
SAME_IDEA = {
    "buckets": "DDP's buckets: recorded in a rank, summarised",
    "cells": "what a byte of a map holds: on the wire, made from values",
    "changes": "only what changed is sent: of a snapshot, of a terminal's screen",
    "compare": "two runs: the comparison, and its screen",
    "events": "what happened to a run: made from findings, listed",
    "excess": "a rank's time beyond that of the others: in general, and of slow ranks",
    "folder": "what a rank leaves in its run's folder: its form, and the rank's way to it",
    "inspecting": "one rank: what a hub shows of it, and the way to it in the dashboard",
    "launching": "a start: the command's, the dashboard's",
    "nodes": "several nodes: a hub among them, and what they say",
    "parallelism": "how a run trains in parallel: concluded in a rank, put into words",
    "past": "steps that the window no longer has: in bins for charts, in blocks for descriptions",
    "pauses": "what a run does besides training: seen, counted, found worth a word",
    "place": "a machine whose runs are listed",
    "processes": "processes of a run",
    "quantities": "what is measured of a rank: the rows, and one rank beside others",
    "reading": "reading of a run: its run.json, checked; its recording, beside the screen",
    "recorded": "a run from its recording",
    "report": "the report: as values, as text",
    "standstill": "where the ranks of a run that stands still are",
    "stopping": "the stop of a run: the command's, the dashboard's",
    "table": "of step records; of screens",
    "unarmed": "processes that run torch without the probe",
    "view": "what is shown: made, and drawn",
    "viewers": "viewers: who serves them, and what they are sent",
    "waits": "who waits for whom: computed, drawn",
    "world": "all ranks at once: the arrays, and the screen",
}
"""Names of files that stand in several packages, and the idea, or the plain word, that they have in common."""
PLAIN = {
    "Past": "what is kept of steps that the window no longer has: for charts, for descriptions",
    "Pause": "of a rank, on the wire; of a run, as counted",
    "Replicas": "of DDP models: in a rank, compared",
    "World": "all ranks side by side: the arrays, the screen",
    "LongestSteps": "the longest steps of a run: kept, listed",
}
"""Classes of one name that are the same thing at two places."""


def twice(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_files_of_one_name_have_an_idea_in_common():
    files = [path.stem for path in ROOT.rglob("*.py") if not path.stem.startswith("__")]
    assert twice(files) == set(SAME_IDEA)


def test_public_classes_of_one_name_are_the_same_thing():
    classes = [
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert twice(classes) == set(PLAIN)
