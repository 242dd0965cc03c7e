"""Graphs of ONNX by strangers: a list of operators, nothing but the file, and bounds of memory and time."""

import re
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sfumato.base import onnx_graphs
from sfumato.base.onnx_graphs import Graph
from sfumato.errors import ArtefactError

EXTRA = ("a test", "serve")
node = helper.make_node
PRODUCT = node("MatMul", ["flat", "weights"], ["y"])
FLAT = node("Flatten", ["x"], ["flat"])


def file(nodes: Sequence[Any], constants: dict[str, np.ndarray] | None = None, **more: Any) -> bytes:
    """A file of a graph `x`, (N, 3, 4, 4) float32 -> `y`."""
    weights = {"weights": np.ones((48, 5), np.float32)} | (constants or {})
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4, 4])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", given, made, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, **more)
    return bytes(model.SerializeToString())


def images(count: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.ones((count, 3, 4, 4), np.float32)}


def test_a_plain_graph_is_run():
    graph = Graph(file([FLAT, PRODUCT]), extra=EXTRA)
    (found,) = graph.run(("y",), images())
    assert np.array_equal(found, np.full((2, 5), 48))
    assert [each.name for each in (*graph.session.get_inputs(), *graph.session.get_outputs())] == ["x", "y"]


@pytest.mark.parametrize("place", ["initializer", "attribute", "without a location"])
def test_weights_in_another_file_are_not_read(tmp_path: Path, place: str):
    (tmp_path / "secret.db").write_bytes(bytes(48 * 5 * 4))
    tensor = TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[48, 5])
    if place != "without a location":  # the list of places alone
        tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(tmp_path / "secret.db"))
    model = onnx.load_from_string(file([FLAT, PRODUCT]))
    del model.graph.initializer[:]
    if place == "attribute":
        model.graph.node.insert(0, node("Constant", [], ["weights"], value=tensor))
    else:
        model.graph.initializer.append(tensor)
    with pytest.raises(ArtefactError, match="it has weights that lie in another file: write it as one file"):
        Graph(model.SerializeToString(), extra=EXTRA)


SIZE = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["size"], to=TensorProto.INT64)]
SIZE += [node("Reshape", ["size", "one"], ["sizes"])]
ONE = {"one": np.array([1])}
LOOP = helper.make_graph([node("Identity", ["x"], ["y"])], "body", [], [])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Loop", ["", "", "y"], ["z"], body=LOOP)], "it has a graph within (a loop or a condition)"),
        ([FLAT, node("If", ["x"], ["y"])], "it has the operator 'If'"),
        ([FLAT, node("RandomUniformLike", ["flat"], ["y"])], "it has the operator 'RandomUniformLike'"),
        ([node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")], "an operator of 'com.microsoft'"),
        ([PRODUCT, FLAT], "its operators are not in the order in which they are computed"),
        ([FLAT, FLAT, PRODUCT], "two of its operators give the same output"),
        ([*SIZE, node("ConstantOfShape", ["sizes"], ["y"])], "ConstantOfShape makes a shape of the values"),
        ([*SIZE, node("Tile", ["size", "sizes"], ["y"])], "Tile makes a shape of the values of an image"),
    ],
)
def test_what_does_more_than_compute_is_refused(nodes: list[Any], message: str):
    cure = "Export the network for inference, as one file, with standard operators"
    with pytest.raises(ArtefactError, match=f"{re.escape(message)}.*{cure}$"):
        Graph(file(nodes, ONE), extra=EXTRA)


def test_functions_and_what_an_unknown_field_may_be_are_refused():
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [node("Identity", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    with pytest.raises(ArtefactError, match="it has functions of its own"):
        Graph(file([FLAT, PRODUCT], functions=[function]), extra=EXTRA)
    # Parts of a message are one when they are put together: what is hidden behind the graph counts as well.
    hidden = onnx.ModelProto()
    hidden.graph.node.append(node("NonZero", ["y"], ["z"]))
    with pytest.raises(ArtefactError, match="it has the operator 'NonZero'"):
        Graph(file([FLAT, PRODUCT]) + hidden.SerializeToString(), extra=EXTRA)
    with pytest.raises(ArtefactError, match="it has a field that is not known here"):
        Graph(file([FLAT, PRODUCT]) + b"\x98\x06\x01", extra=EXTRA)


def test_shapes_may_follow_from_shapes():
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["count"])]
    nodes += [node("Concat", ["count", "rest"], ["sizes"], axis=0), node("Reshape", ["x", "sizes"], ["flat"])]
    content = file([*nodes, PRODUCT], {"zero": np.array([0]), "rest": np.array([48])})
    assert Graph(content, extra=EXTRA).run(None, images(3))[0].shape == (3, 5)


@given(cut=st.integers(0, 2000), flip=st.integers(0, 2000), value=st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_an_error_in_words(cut: int, flip: int, value: int):
    content = bytearray(file([FLAT, PRODUCT]))
    content[flip % len(content)] = value
    with suppress(ArtefactError):  # and nothing else
        onnx_graphs.check(bytes(content[: cut or None]))
    with pytest.raises(ArtefactError, match="not a graph"):
        onnx_graphs.check(b"no graph")


def test_a_graph_that_grows_beyond_the_bound_of_memory_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_graphs, "MOST_MEMORY", 256 << 20)
    before = resource.getrlimit(resource.RLIMIT_AS)
    nodes = [FLAT, node("Tile", ["flat", "times"], ["wide"]), node("ReduceSum", ["wide", "all"], ["y"])]
    graph = Graph(file(nodes, {"times": np.array([1 << 12, 1 << 14]), "all": np.array([1])}), extra=EXTRA)
    with pytest.raises(ArtefactError, match="this graph does not run on inputs of"):
        graph.run(None, images())
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_graphs, "MOST_SECONDS", 0.05)
    square = {"weights": np.full((1000, 1000), 1e-3, np.float32)}
    nodes = [node("ReduceMean", ["x"], ["mean"], keepdims=0), node("Mul", ["weights", "mean"], ["n0"])]
    nodes += [node("MatMul", [f"n{step}", "weights"], [f"n{step + 1}"]) for step in range(200)]
    graph = Graph(file([*nodes, node("Identity", ["n200"], ["y"])], square), extra=EXTRA)
    with pytest.raises(ArtefactError, match=r"a run of this graph took more than 0.05 s"):
        graph.run(None, images())
