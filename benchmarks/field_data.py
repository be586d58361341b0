"""Tiny synthetic data in the formats that the programs of field_scripts.toml read. That file gives sizes as texts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np


def images(root: Path, count: str, size: str = "32", flat: str = "", splits: str = "train,val") -> None:
    """Write two classes of noise images: SPLIT/CLASS/N.jpg, or all in one folder if `flat`."""
    from PIL import Image

    rng = np.random.default_rng(1)
    for split in splits.split(","):
        for name in ("cat", "dog"):
            for i in range(int(count) // 2):
                pixels = rng.integers(0, 255, (int(size), int(size), 3), dtype=np.uint8)
                path = root / f"{name}_{i}.jpg" if flat else root / split / name / f"{i}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)


def tokens(root: Path, count: str, vocabulary: str, form: str) -> None:
    """Write random tokens. bin: train.bin and val.bin of uint16; npy: a shard each; header: bin after 256 numbers."""
    rng = np.random.default_rng(1)
    root.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        drawn = rng.integers(0, int(vocabulary), int(count), dtype=np.uint16)
        if form == "npy":
            np.save(root / f"{split}_0.npy", drawn)
        else:
            head = np.zeros(256, dtype=np.int32)
            head[:3] = 20240520, 1, int(count)
            (root / f"{split}.bin").write_bytes((head.tobytes() if form == "header" else b"") + drawn.tobytes())


def text(root: Path, name: str, letters: str) -> None:
    rng = random.Random(1)
    root.mkdir(parents=True, exist_ok=True)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 7))) for _ in range(200)]
    out = ""
    while len(out) < int(letters):
        out += " ".join(rng.choices(words, k=8)) + ".\n"
    (root / name).write_text(out[: int(letters)])


def documents(root: Path, folder: str, count: str) -> None:
    """Write two Parquet files of short texts, each in four row groups."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = random.Random(1)
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("shard_00000", "shard_00001"):
        texts = ["".join(rng.choices("abcdefgh", k=rng.randint(8, 40))) for _ in range(int(count))]
        parquet.write_table(pa.table({"text": texts}), root / folder / f"{name}.parquet", int(count) // 4)


def instructions(root: Path, count: str) -> None:
    """Write examples with instruction, input and output, as for fine-tuning."""
    rng = random.Random(1)
    word = lambda: "".join(rng.choices("abcdefgh", k=5))
    examples = [{"instruction": word(), "input": word(), "output": word()} for _ in range(int(count))]
    root.mkdir(parents=True, exist_ok=True)
    (root / "instructions.json").write_text(json.dumps(examples))


def pairs(root: Path, count: str) -> None:
    """Write pairs of sentences and whether they mean the same, one JSON object a line."""
    rng = random.Random(1)
    root.mkdir(parents=True, exist_ok=True)
    sentence = lambda: "".join(rng.choices("abcdefgh", k=20))
    rows = ({"sentence1": sentence(), "sentence2": sentence(), "label": i % 2, "idx": i} for i in range(int(count)))
    (root / "pairs.json").write_text("\n".join(map(json.dumps, rows)))


def tokenizer(root: Path) -> None:
    """Write a tokenizer of whole words, with the special tokens that BERT and GPT need; it knows few words."""
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "</s>", *"abcdefghijklmnopqrstuvwxyz.,:#"]
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "[UNK]"}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False},
        "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    folder = root / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    marks = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "bos_token": "</s>", **marks}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"model_max_length": 64}))


def digits(root: Path, train: str, test: str) -> None:
    """Write noise in MNIST's own format, where torchvision looks for it."""
    rng = np.random.default_rng(1)
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", int(train)), ("t10k", int(test))):
        pixels = rng.integers(0, 255, (count, 28, 28), dtype=np.uint8)
        shape = np.array([0x803, count, 28, 28], dtype=">i4").tobytes()
        (folder / f"{name}-images-idx3-ubyte").write_bytes(shape + pixels.tobytes())
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            np.array([0x801, count], dtype=">i4").tobytes() + labels.tobytes()
        )


def waves(root: Path, count: str, samples: str) -> None:
    """Write noise as N.wav (16 bits, 22,050 Hz), and their names as train.txt and val.txt (the first four)."""
    from scipy.io import wavfile

    rng = np.random.default_rng(1)
    root.mkdir(parents=True, exist_ok=True)
    names = [str(i) for i in range(int(count))]
    for name in names:
        wavfile.write(root / f"{name}.wav", 22050, rng.integers(-20000, 20000, int(samples), dtype=np.int16))
    (root / "train.txt").write_text("".join(f"{name}|\n" for name in names))
    (root / "val.txt").write_text("".join(f"{name}|\n" for name in names[:4]))
