"""Images that the gradient of a first linear layer holds exactly: read by algebra, without a search.

With u = W·x + b, dL/dW is the outer product of dL/du and x, and dL/db is dL/du.

- `recover_one`: so x is a row of dL/dW divided by the same entry of dL/db (Phong et al. 2017, Sec. 3; Geiping
  et al. 2020, Proposition 3.1). A sum of such gradients, of several steps on one image, is an outer product
  with the same x. Without a bias x is known up to a factor, which the slopes dL/du tell.
- `recover_batch`: SPEAR, Dimitrov, Baader, Müller & Vechev 2024 (arXiv:2403.03945), before a ReLU. With Z =
  X·W' + b, the gradient by W is G = D'·X, where the rows of D are dL/dZ: its rank is the number of images.
  Any factorisation G = L·R of that rank is D' = L·Q and X = Q⁻¹·R for one matrix Q (Theorem 3.1), and a ReLU
  makes D sparse: a row of L at which image i is not active is orthogonal to column i of Q. So kernels of B -
  1 random rows of L are such columns from time to time (Sec. 3.2); those with most zeros in L·q are kept.
  Their lengths follow from the gradient by b, which is D'·1 (Theorem 3.3). They are checked by comparing the
  activations of the images with the nonzero entries of D (Sec. 3.3).
- `recover_imprinted`: from a malicious server's layer, Fowl, Geiping, Czaja, Goldblum & Goldstein 2021,
  "Robbing the Fed", Sec. 3. Every row before a ReLU measures the same value of an image, its mean brightness,
  and row i passes values above threshold i. Rows i and i + 1 differ only in images between their thresholds:
  one image there is the difference of their gradients by weights, divided by that of those by biases.

Differences of SPEAR: factors and kernels are float64; rows at which no image is active are not drawn;
directions are chosen by their zeros alone, see `_sparsest`, where the source swaps them by the match. Several
steps on the same images have a gradient of the same form, D being the sum of theirs: an image is then
compared at units that it lights both before and after, or neither. Limit: with K classes after ONE hidden
layer some mixture of K images is zero wherever all of them are active, which can be more often than one image
is inactive. A batch of 8 with 3 classes was not found, and is refused because of its low match.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from sfumato.attack import label_inference
from sfumato.attack.victim import check_gradient, layers_of
from sfumato.errors import ConfigError, DataError

PARALLEL = 1e-2  # rounding in half precision stays below, two different images are far above
_NOTHING = 1e-3  # of the largest number: smaller ones do not count as signs
_NEAR, _MOSTLY = 0.2, 0.4  # if most numbers are as large as the median one, up to this, they are signs
_AGREES = 0.99999  # cosine of slopes from which a factor is right
_CLEARLY = 0.1  # times as far from 1 as for a factor of 1
_ROUNDS = 5  # of a power iteration
_REACH, _POINTS, _ZOOMS = 30.0, 33, 5  # of the search for a factor
_CLASSES = 20  # at most, for which it is tried

EXACT = 0.99  # share of units and images that match: less is not rounding; one wrong image of 16 costs 2%
LIKELY = 0.8  # of an image: steps turn units on and off, but mixtures of two images are at 0.7 or less
_DRAWN = 2048  # sets of rows at once
_NOISE = 1e-6  # singular values below this share of the first are rounding, in float32
_GAP = 20.0  # least ratio of the last singular value of the signal to the first of rounding
_ROUNDING = 30.0  # an entry this far above the rounding of the singular values is not zero
_SURELY = 2.0  # times a root mean square
_LEAST_ZERO, _MOST_ZERO = 1e-9, 1e-3
_DEPENDENT = 1e-3  # a unit vector this near to the span of others depends on them

_SAME = 0.999  # cosine above which rows measure the same
_SUSPECT = 0.5  # share of rows; in trained or random networks, hardly any are parallel
_LEAST_ROWS = 4
_OUTSIDE = 0.02  # how far beyond [0, 1] an image may lie by rounding
_LEAST = 1e-6  # share of the largest difference below which a bin is empty


def recover_one(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Recover the one image behind a gradient. -> (1, C, H, W) float, as the model's input.

    All rows count by least squares, x = dW' · db / |db|², where the sources use one, x = dW_i / db_i: rows
    with small gradients, which rounding hits most, count little. Numbers that are 0 do not count: some
    clients send the largest alone.

    `model`: its first layer is linear, and sees the (C, H, W) image itself, flattened. `shared`: name of a
    parameter -> its gradient, or the sum of those of several steps. Raises ConfigError for another model, and
    DataError for a gradient that does not fit, is 0 for all biases, of several images, or of signs alone.
    """
    image, apart, _ = nearest(model, shared, shape)
    name, _, slopes, scaled = _gradient(model, shared, shape)
    if apart > PARALLEL:
        raise DataError(
            f"the rows of the gradient of {name}.weight are not parallel, {100 * apart:.1f}% of it lies "
            "apart: more than one image is behind it, or noise, take sfumato.attack.gradient_inversion"
        )
    return _scale_images(model, shared, image.double(), slopes[:, None], scaled=scaled).float()


def nearest(
    model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]
) -> tuple[Tensor, float, float]:
    """Return the result of `recover_one` as if the gradient were of one image, and how far it is from that.

    For a gradient of several images it is their mixture, weighted by their shares of the biases' gradient;
    for one with noise it is the image with noise. `recover_one` refuses both. -> (1, C, H, W) float, any
    values; the share of the gradient that lies apart; and the variance of pixels if this share is noise.
    """
    name, weight, slopes, scaled = _gradient(model, shared, shape)
    if not bool(slopes.any()):
        raise DataError(
            f"the gradient of {name}.bias is 0 everywhere: no unit of this layer passed anything on, and the "
            "image is not in the gradient"
        )
    sent, squares = weight.ne(0).double(), slopes.square()
    energy = (sent.T @ squares).clamp(min=1e-300)
    image = weight.T @ slopes / energy
    rest = (weight - torch.outer(slopes, image)) * sent
    apart = rest.norm() / weight.norm().clamp(min=float(slopes.norm()) * scaled)
    variances = (rest.square().T @ squares) / energy.square()
    common = slopes  # to all pixels: what the slopes are without noise of their own
    for _ in range(_ROUNDS):
        common = weight @ (weight.T @ common)
        common = common / common.norm()
    paler = squares.sum() / (common @ slopes) ** 2 - 1  # the image, by noise in the slopes
    variance = variances.mean() + image.square().mean() * paler**2
    return image.reshape(1, *shape).float().cpu(), float(apart), float(variance)


def _gradient(
    model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]
) -> tuple[str, Tensor, Tensor, bool]:
    """Return the first layer's name, its gradients by weights and outputs, and if a bias gave the latter."""
    name, first = first_linear(model, shape, biased=False)
    weight, slopes = check_layer(shared, name, first)
    sizes = weight[weight.abs() > _NOTHING * weight.abs().amax()].abs()
    if len(sizes) and float(((sizes / sizes.median() - 1).abs() < _NEAR).double().mean()) > _MOSTLY:
        raise DataError(
            f"most numbers in the gradient of {name}.weight are of one size: these are signs, as of signSGD "
            "and of the first steps of Adam, or the largest alone, and no pixel comes of dividing them"
        )
    if len(slopes):
        return name, weight, slopes, True
    # Without a bias those of the largest singular value, for an image with a largest value of 1.
    image = _largest_one(torch.linalg.svd(weight, full_matrices=False).Vh[:1])[0]
    return name, weight, weight @ image / image.square().sum(), False


def _largest_one(images: Tensor) -> Tensor:
    """Scale images, (B, pixels), to a positive sum and a largest value of 1, as those in [0, 1] have."""
    images = images * images.sum(1, keepdim=True).sign()
    return images / images.amax(1, keepdim=True).clamp(min=1e-300)


def _scale_images(
    model: nn.Module, shared: Mapping[str, Tensor], images: Tensor, slopes: Tensor, *, scaled: bool
) -> Tensor:
    """Multiply (B, C, H, W) images by the factors up to which they are known.

    The direction of the (m, B) slopes by the first layer's outputs depends on the factor: the one is taken
    whose slopes agree with those of the gradient, for the classes that the last layer's gradient tells; 1 if
    none does, as for several steps. If `scaled` by a bias, 1 is tried first: clients may scale each gradient.
    """
    model = copy.deepcopy(model).double().eval().cpu()
    try:
        classes = label_inference.slopes(model, shared).argsort()[:_CLASSES].tolist()
    except ConfigError:
        return images
    found = []
    for image, wanted in zip(images.cpu(), slopes.T.cpu(), strict=True):
        factor = 1.0
        best = first = float(_agreement(model, image[None], wanted, classes))
        for zoom in range(0 if scaled and best > _AGREES else _ZOOMS):
            reach = _REACH ** ((4 / _POINTS) ** zoom)
            factors = factor * torch.logspace(-1, 1, _POINTS, base=reach, dtype=torch.float64)
            agreements = _agreement(model, factors[:, None, None, None] * image, wanted, classes)
            best, factor = float(agreements.max()), float(factors[agreements.argmax()])
        clearly = best > _AGREES and 1 - best < _CLEARLY * (1 - first)
        found.append(image * (factor if clearly else 1.0))
    return torch.stack(found)


def _agreement(model: nn.Module, images: Tensor, wanted: Tensor, classes: list[int]) -> Tensor:
    """(K, C, H, W) -> (K,) cosines of wanted slopes and those of each image, for the best of some classes."""
    outputs: list[Tensor] = []
    layer = first_linear(model, biased=False)[1]
    hook = layer.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    logits = model((images.flatten(1) if layer is model else images).requires_grad_())
    hook.remove()
    slopes = [
        torch.autograd.grad(-logits.log_softmax(1)[:, label].sum(), outputs[0], retain_graph=True)[0]
        for label in classes
    ]
    return cosine_similarity(torch.stack(slopes), wanted, dim=2).amax(0)


def first_linear(
    model: nn.Module, shape: tuple[int, int, int] | None = None, *, biased: bool = True
) -> tuple[str, nn.Linear]:
    """Return name and module of the first layer with parameters. Raises ConfigError if it does not fit."""
    name, first = next(iter(layers_of(model)), ("", model))
    if not isinstance(first, nn.Linear) or (biased and first.bias is None):
        kind = "nn.Linear without a bias" if isinstance(first, nn.Linear) else type(first).__name__
        raise ConfigError(
            f"the first layer with parameters is {kind}: inputs are read from an nn.Linear with a bias, "
            "for others take sfumato.attack.gradient_inversion"
        )
    if shape is not None and first.in_features != math.prod(shape):
        raise ConfigError(
            f"images of shape {tuple(shape)} are {math.prod(shape)} numbers, and {name} takes "
            f"{first.in_features}: give the shape (C, H, W) of the model's input"
        )
    return name, first


def check_layer(shared: Mapping[str, Tensor], name: str, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Check the gradients of weight and bias of a layer: (out, in), and (out,) or (0,). Raises DataError."""
    found = []
    for kind, parameter in layer.named_parameters(recurse=False):
        full = f"{name}.{kind}".lstrip(".")
        if full not in shared:
            raise DataError(f"the gradient lacks {full}: it is of another model, or the layer is not trained")
        check_gradient(full, shared[full], parameter)
        found.append(shared[full].detach().double())
    return found[0], found[1] if len(found) > 1 else found[0].new_empty(0)


@dataclass(frozen=True)
class Recovered:
    """The batch behind a gradient."""

    images: Tensor  # (B, C, H, W) float32, as the model's input, in no particular order
    # The share of units and images whose activation and gradient agree, the sparsity matching coefficient of
    # the source: from EXACT on, the images are those of the batch.
    match: float
    matches: Tensor  # (B,), the same of each image; LIKELY or more for one of the batch
    drawn: int  # sets of rows tried


def recover_batch(
    model: nn.Module,
    shared: Mapping[str, Tensor],
    shape: tuple[int, int, int],
    *,
    generator: torch.Generator,
    most: int = 400_000,
    rounding: Tensor | None = None,
    moved: Mapping[str, Tensor] | None = None,
) -> Recovered:
    """Recover all images behind a gradient, or behind the sum of those of several steps, without a search.

    The expected number of draws grows as 2^B if half of the units are active: batches of 8 take a second,
    batches of 16 minutes. `most`: sets of rows to try. A ReLU follows the layer; see recover_one.

    `rounding`: (m,), error of a number in each row of the gradient by the weight, as a root mean square:
    16-bit numbers have the rank of their rounding. `moved`: name of a parameter -> its value before the steps
    minus that after. Raises DataError if the gradient has no low rank (as with noise, or more images than
    units), or no images were found that match it (as without a ReLU, or for a batch too large).
    """
    name, first = first_linear(model, shape, biased=False)
    weight, bias = check_layer(shared, name, first)
    left, right, near = low_rank(weight.cpu(), name, rounding=rounding)
    states = [[each.detach().double().cpu() for each in first.parameters()]]
    if moved is not None:
        steps = [moved[f"{name}.{kind}".lstrip(".")] for kind, _ in first.named_parameters()]
        states += [[own - step.double().cpu() for own, step in zip(states[0], steps, strict=True)]]
    best, slopes, matches, match, drawn = Tensor(), Tensor(), Tensor(), 0.0, 0
    directions = left.new_ones(1, 1) if left.shape[1] == 1 else left.new_empty(left.shape[1], 0)
    while True:
        if directions.shape[1] == left.shape[1]:
            images, mixing = _images(directions, left, right, bias.cpu())
            agreement, agreements = _match(images, left @ mixing, states, near)
            if agreement > match:
                best, slopes, match, matches = images, left @ mixing, agreement, agreements
        if match >= EXACT or drawn >= most or left.shape[1] == 1:
            break
        directions = _sparsest(torch.cat([directions, _draw(left, near, generator)], 1), left, near)
        drawn += _DRAWN
    if not bool((matches >= LIKELY).any()):
        raise DataError(
            f"in {drawn:,} draws no {left.shape[1]} images were found that match the gradient: the batch is "
            f"too large, or {name} is not followed by a ReLU; use sfumato.attack.gradient_inversion"
        )
    best = best.reshape(-1, *shape)
    if not len(bias):
        best = _scale_images(model, shared, best, slopes, scaled=False)
    return Recovered(best.float(), match, matches, drawn)


@dataclass(frozen=True)
class Near:
    """Tolerances around zero."""

    zero: float  # for the entries of a column, as a share of the largest
    floor: Tensor  # (m, 1), for the entries of each row with known rounding
    # For the rest of a unit vector outside the span of others. A kernel of nearly dependent rows has an error
    # of their rounding divided by this rest: the square root balances the two.
    dependent: float

    def differs(self, values: Tensor) -> Tensor:
        """Mark the entries of (m, K) that are not zero."""
        sizes = values.abs()
        return sizes > torch.maximum(self.zero * sizes.amax(0), self.floor)


def low_rank(gradient: Tensor, name: str, *, rounding: Tensor | None = None) -> tuple[Tensor, Tensor, Near]:
    """Factor (m, n) float64 into L (m, B) and R (B, n), B the number of images, with their tolerances.

    The largest singular value of an (m, n) matrix of rounding errors is near √m + √n times the error of a
    number (Rudelson & Vershynin 2010). Raises DataError if the gradient is zero, or has no low rank.
    """
    u, s, v = torch.linalg.svd(gradient, full_matrices=False)
    height, width = map(math.sqrt, gradient.shape)
    floor = gradient.new_zeros(len(gradient), 1) if rounding is None else _SURELY * rounding.double()[:, None]
    rounded = float(floor.square().mean().sqrt()) * (height + width)
    rank = int((s > max(_NOISE * float(s[0]), rounded)).sum())
    if not rank:
        raise DataError(f"the gradient of {name}.weight is 0 everywhere: no image is in it")
    if rank == len(s) or s[rank - 1] < _GAP * s[rank]:
        raise DataError(
            f"the gradient of {name}.weight has rank {rank} and no gap below it: noise was added, it is of "
            f"several steps, or of {len(s)} images or more; use sfumato.attack.gradient_inversion"
        )
    share = float(s[rank] / s[rank - 1])
    if rounded > _NOISE * float(s[0]):
        near = Near(_LEAST_ZERO, floor, max(_DEPENDENT, math.sqrt(share)))
    else:
        zero = min(max(_ROUNDING * share, _LEAST_ZERO), _MOST_ZERO)
        near = Near(zero, torch.zeros_like(floor), _DEPENDENT)
    return u[:, :rank] * s[:rank], v[:rank], near


def _images(directions: Tensor, left: Tensor, right: Tensor, shared_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Compute (B, n) images from (B, B) directions, and Q."""
    if len(shared_bias):
        lengths = torch.linalg.lstsq(left @ directions, shared_bias[:, None]).solution
        mixing = directions * lengths.T
        return torch.linalg.solve(mixing, right), mixing
    images = torch.linalg.solve(directions, right)
    bright = _largest_one(images)
    return bright, directions * ((images * bright).sum(1) / bright.square().sum(1))


def _match(images: Tensor, slopes: Tensor, states: list[list[Tensor]], near: Near) -> tuple[float, Tensor]:
    """Compute how often activations, in all states, agree with (m, B) slopes: over all, and (B,) by image."""
    active = torch.stack([images @ weight.T + sum(bias) > 0 for weight, *bias in states])  # (S, B, m)
    passed = near.differs(slopes).T
    # A unit may be active without a slope, if later units are dead: these rows say nothing.
    known = passed.any(0) & (active == active[0]).all(0)
    right = (passed == active[0]) & known
    return float(right.sum() / known.sum().clamp(min=1)), right.sum(1) / known.sum(1).clamp(min=1)


def _draw(left: Tensor, near: Near, generator: torch.Generator) -> Tensor:
    """Draw (B, K) unit directions, each determined by B - 1 rows of L orthogonal to it."""
    norms = left.norm(dim=1, keepdim=True)
    rows = (left / norms)[near.differs(norms)[:, 0]]  # of units that are active for some image
    least = left.shape[1] - 1
    if len(rows) < least:
        return left.new_empty(left.shape[1], 0)
    chosen = torch.rand(_DRAWN, len(rows), generator=generator).topk(least, dim=1).indices
    _, sizes, kernels = torch.linalg.svd(rows[chosen])
    kept: Tensor = kernels[sizes[:, -1] > near.dependent, -1].T
    return kept


def _sparsest(directions: Tensor, left: Tensor, near: Near) -> Tensor:
    """Choose at most B independent directions, (B, K), with most zeros among the entries of L·q."""
    # The columns of Q come first: an entry of a mixture is zero only if it is zero for all its images.
    active = near.differs(left.norm(dim=1, keepdim=True))
    zeros = (active & ~near.differs(left @ directions)).sum(0)
    taken: list[Tensor] = []
    rest = directions  # without the span of those taken
    while len(taken) < len(left.T):
        zeros = zeros.where(rest.norm(dim=0) > near.dependent, -1)
        best = int(zeros.argmax()) if len(zeros) else 0
        if not len(zeros) or zeros[best] < 0:
            break
        taken.append(directions[:, best])
        axis = rest[:, best] / rest[:, best].norm()
        rest = rest - torch.outer(axis, axis @ rest)
    return torch.stack(taken, 1) if taken else directions[:, :0]


def recover_imprinted(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Recover the images that are alone in a bin from an imprint layer's gradient. -> (K, C, H, W) float.

    A bin of several gives their mixture, as if it were an image. Raises DataError also if none holds one.
    """
    name, first = first_linear(model, shape)
    weight, bias = check_layer(shared, name, first)
    order = first.bias.detach().argsort(descending=True)  # the lowest threshold first
    weight, bias = weight[order], bias[order]
    above = torch.cat([bias[1:], bias.new_zeros(1)])
    beyond = torch.cat([weight[1:], weight.new_zeros(1, weight.shape[1])])
    slopes, pixels = bias - above, weight - beyond  # of the images in each bin
    held = slopes.abs() > _LEAST * slopes.abs().max()
    if not bool(held.any()):
        raise DataError(f"no bin of {name} holds an image: none is above its lowest threshold")
    images = pixels[held] / slopes[held, None]
    inside = (images.amin(1) > -_OUTSIDE) & (images.amax(1) < 1 + _OUTSIDE)
    return images[inside].reshape(-1, *shape).float().cpu()


def detect_imprint(model: nn.Module) -> tuple[str, float] | None:
    """Name a linear layer most of whose rows measure the same value, and their share; or None.

    Not a server that takes another measurement in each row, or hides the rows among many others.
    """
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or module.out_features < _LEAST_ROWS or module.in_features < 2:
            continue
        rows = normalize(module.weight.detach().double(), dim=1)
        axis = torch.linalg.svd(rows, full_matrices=False).Vh[0]
        share = float(((rows @ axis).abs() > _SAME).double().mean())
        if share >= _SUSPECT:
            return name, share
    return None
