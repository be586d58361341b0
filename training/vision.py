"""Import torchvision, even if torch is a CPU build.

The usual torchvision wheel is built for CUDA. With a torch without CUDA, its compiled part cannot
load, and the import fails with "operator torchvision::nms does not exist". But datasets, transforms and
classification models are pure Python, so it is enough to declare the two operators that the import needs.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # Keep the library object in a module variable, because the declarations end with the object.
    _operators = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

datasets, models, transforms = torchvision.datasets, torchvision.models, torchvision.transforms
