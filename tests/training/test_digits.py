"""The digits that ship with the repository are what torchvision's MNIST class and the licence ask for."""

import struct

import numpy as np
import pytest
from conftest import TRAINING

DIGITS = TRAINING / "data" / "digits"


def read_idx(name):
    content = (DIGITS / "MNIST" / "raw" / name).read_bytes()
    zeros, kind, dimensions = struct.unpack(">HBB", content[:4])
    shape = struct.unpack(f">{dimensions}i", content[4 : 4 + 4 * dimensions])
    assert (zeros, kind) == (0, 8), "MNIST's magic number: two zero bytes, 8 for unsigned bytes"
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


@pytest.mark.parametrize(("part", "count"), [("train", 1500), ("t10k", 297)])
def test_images_and_labels_belong_together(part, count):
    images, labels = read_idx(f"{part}-images-idx3-ubyte"), read_idx(f"{part}-labels-idx1-ubyte")
    assert images.shape == (count, 28, 28)
    assert labels.shape == (count,)
    assert set(labels.tolist()) == set(range(10))


def test_images_use_the_whole_grey_scale_and_no_digit_is_both_trained_with_and_held_back():
    train, held_back = read_idx("train-images-idx3-ubyte"), read_idx("t10k-images-idx3-ubyte")
    assert train.min() == 0
    assert train.max() == 255
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in held_back}


def test_torchvision_reads_them_as_mnist():
    from vision import datasets

    digits = datasets.MNIST(DIGITS, train=False)
    image, label = digits[0]
    assert (len(digits), image.size, image.mode) == (297, (28, 28), "L")
    assert label == read_idx("t10k-labels-idx1-ubyte")[0]


def test_source_licence_and_changes_are_named():
    text = (DIGITS / "SOURCE.md").read_text()
    for words in ("Alpaydin", "UCI", "doi.org/10.24432/C50P49", "CC BY 4.0", "make_digits.py"):
        assert words in text
