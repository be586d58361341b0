"""torchvision, importable beside a CPU build of torch too.

The torchvision wheel most people get is built for CUDA. Beside a torch without CUDA its compiled part cannot
load, and its import fails with "operator torchvision::nms does not exist", although datasets, transforms and
classification models are pure Python. Declaring the two operators that the import asks for, without a body, is
enough.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # Kept in a module variable: the declarations go when the library object does.
    _operators = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

datasets, models, transforms = torchvision.datasets, torchvision.models, torchvision.transforms
