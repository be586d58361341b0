"""Make training/data/digits, the handwritten digits that mnist.py reads. Needs scikit-learn and Pillow.

    python training/data/make_digits.py

The images in the repository were made with this script, which documents how they differ from the originals.
"""

import struct
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SIDE = 28
TRAIN = 1500  # The rows after these are held back for the test.
FOLDER = Path(__file__).parent / "digits" / "MNIST" / "raw"  # torchvision's MNIST class looks here.


def resize(image: np.ndarray) -> np.ndarray:
    """Return an 8x8 image with values 0..16 as a 28x28 image with values 0..255."""
    picture = Image.fromarray(np.round(image * (255 / 16)).astype(np.uint8))
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write MNIST's format: 0, 0, 8 (for unsigned bytes), the number of dimensions, each size in big-endian int32,
    bytes.
    """
    header = struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def main() -> None:
    digits = load_digits()
    images = np.stack([resize(image) for image in digits.images])
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", slice(None, TRAIN)), ("t10k", slice(TRAIN, None))):
        write_idx(FOLDER / f"{name}-images-idx3-ubyte", images[rows])
        write_idx(FOLDER / f"{name}-labels-idx1-ubyte", digits.target[rows])


if __name__ == "__main__":
    main()
