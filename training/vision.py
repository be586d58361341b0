"""Import torchvision, also beside a CPU build of torch.

The torchvision wheel that most people get is built for CUDA. Beside a torch without CUDA its compiled part cannot
load, and the import fails with "operator torchvision::nms does not exist". But datasets, transforms and
classification models are pure Python. It is enough to declare the two operators that the import looks up.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # Keep the library object in a module variable: the declarations disappear with it.
    _operators = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

datasets, models, transforms = torchvision.datasets, torchvision.models, torchvision.transforms
