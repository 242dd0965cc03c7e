"""Layer separation: a network cut in two at a layer, the first half for a device, the second for a cloud.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 4.1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks.encoders.small import check_size, halve


def cut(module: nn.Module, at: str) -> tuple[nn.Module, nn.Module]:
    """Cuts a network into the part up to the output of a layer, and the part after it.

    Promises: analyser(extractor(x)) equals module(x), by the same operations in the same order,
    for modules whose forward neither asks `self.training` nor changes the layer's output in place; and both
    halves hold the parameters and buffers of `module` itself, under the same names: training them trains it.

    `at`: the path of a layer, such as "conv7" or "blocks.1". Raises ConfigError if there is none; if torch.fx
    cannot trace the forward, or it does not call the layer exactly once; or if later layers need more than
    its output, as inside a residual block.
    """
    names = [name for name, _ in module.named_modules() if name]
    if at not in names:
        raise ConfigError(f"{type(module).__name__} has no layer {at!r}: {did_you_mean(at, names)}")
    try:
        with _TensorsAsTheyAre():
            graph = _Tracer(at).trace(module)
    except Exception as error:
        # Tracing runs a forward of unknown code, which may fail in any way on a stand-in for a tensor.
        raise ConfigError(
            f"{type(module).__name__} cannot be cut: torch.fx cannot trace its forward ({error}): write it "
            "without branches on values"
        ) from error
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == at]
    if len(calls) != 1:
        raise ConfigError(
            f"the forward of {type(module).__name__} calls layer {at!r} {len(calls)} times, and a cut needs "
            "one call: choose another layer"
        )
    return _extractor(module, graph, calls[0]), _analyser(module, graph, calls[0])


class _Tracer(fx.Tracer):
    """Looks into all modules but one, so that its output is a node to cut at."""

    def __init__(self, at: str) -> None:
        # Both look at images, which do not exist yet.
        super().__init__(autowrap_functions=(check_size, halve))
        self._at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name == self._at or super().is_leaf_module(m, module_qualified_name)


class _TensorsAsTheyAre(TorchFunctionMode):
    """Lets torch.as_tensor pass on the stand-in for a tensor, whose numbers it would try to read."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.as_tensor and isinstance(args[0], fx.Proxy) and not kwargs:
            return args[0]
        return func(*args, **(kwargs or {}))


def _before(layer: fx.Node) -> set[fx.Node]:
    """The layer, and all nodes that its output is computed from."""
    found, open_ = {layer}, [layer]
    while open_:
        new = [node for node in open_.pop().all_input_nodes if node not in found]
        found.update(new)
        open_.extend(new)
    return found


def _is_first(node: fx.Node, before: set[fx.Node]) -> bool:
    """Whether a node belongs to the extractor: also a check, from which nothing is computed."""
    if node in before or node.op == "placeholder":
        return True
    return node.op != "output" and not node.users and set(node.all_input_nodes) <= before


def _extractor(module: nn.Module, graph: fx.Graph, layer: fx.Node) -> nn.Module:
    before, first = _before(layer), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if _is_first(node, before):
            copies[node] = first.node_copy(node, lambda each: copies[each])
    first.output(copies[layer])
    return fx.GraphModule(module, first, "Extractor")


def _analyser(module: nn.Module, graph: fx.Graph, layer: fx.Node) -> nn.Module:
    before, second = _before(layer), fx.Graph()
    copies = {layer: second.placeholder("features")}
    for node in graph.nodes:
        # Parameters and constants that both halves use do not cross the cut.
        if _is_first(node, before) and node.op != "get_attr":
            continue
        crossing = [each for each in node.all_input_nodes if each not in copies]
        if crossing:
            raise ConfigError(
                f"layer {layer.target!r} does not cut {type(module).__name__} in two: the layers after it "
                f"need {crossing[0].name!r} too: choose a layer that all data pass through, such as the end "
                "of a block"
            )
        copies[node] = second.node_copy(node, lambda each: copies[each])
    for node in second.nodes:
        if node.op == "get_attr" and not node.users:
            second.erase_node(node)
    return fx.GraphModule(module, second, "Analyser")
