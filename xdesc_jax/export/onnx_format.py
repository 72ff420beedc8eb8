"""ONNX files: the only module that imports onnx and onnxruntime.

In: a translation (see `translation_graph`). Out: an .onnx file that computes it for any number of rows, with the
metadata in `metadata_props`; and a function that runs such a file. Operators are of opset 18 in IR version 8, which
run times of 2023 and later read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import __version__
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.export.file_format import FileFormat
from xdesc_jax.export.photo_inputs import NO_FRAME
from xdesc_jax.export.translation_graph import Graph, Run
from xdesc_jax.networks.context import FAR, REACHES_PX, REACHES_SIGMA
from xdesc_jax.networks.frames import MIDDLE, SPREAD
from xdesc_jax.translation.bundle import Layers

OPSET, IR_VERSION = 18, 8
_ERRORS_ONLY = 3  # severity of onnxruntime's own log


def write(path: Path, graph: Graph) -> None:
    """Writes a translation, which onnx's own checker accepts."""
    import onnx

    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def run_of(path: Path) -> Run:
    """A function that runs an ONNX file with onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    inputs = [given.name for given in session.get_inputs()]

    def run(*given: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, dict(zip(inputs, given, strict=True))), strict=True))

    return run


FORMAT = FileFormat(
    "an ONNX file", ("onnx", "onnxruntime"), "onnx", write, run_of, readable="a readable ONNX file", least_rows=0
)


def metadata(path: Path | str) -> dict[str, str]:
    """What an ONNX file says of itself."""
    import onnx

    return {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}


def to_model(graph: Graph) -> Any:
    """The translation as an `onnx.ModelProto`."""
    from onnx import TensorProto, helper

    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.bool_): TensorProto.BOOL}
    body = _Body()
    x = body.add("Cast", "source", to=TensorProto.FLOAT) if graph.source.binary else "source"
    zero, columns = body.constant(np.float32(0)), body.constant(np.array([1], np.int64))
    alive = body.add("Greater", body.add("ReduceMax", body.add("Abs", x), columns), zero)
    for i, (network, layers, takes_unit_rows) in enumerate(graph.steps):
        x = body.unit(x) if takes_unit_rows else x
        if network in graph.framed:
            x = body.add("Concat", x, body.encoded("frames", graph.harmonics), axis=-1)
        if i == 0 and graph.context is not None:
            x = body.add("Concat", x, _told(body, graph, graph.context, x), axis=-1)
        for j, (kernel, bias) in enumerate(layers):
            x = body.add("Relu", x) if j else x
            x = body.linear(x, kernel, bias, f"{network}/{j}")
    _finish(body, x, alive, graph.target)
    made = helper.make_graph(
        body.nodes,
        graph.name,
        [helper.make_tensor_value_info(n, types[x.dtype], ["N", *x.shape[1:]]) for n, x in graph.given.items()],
        [helper.make_tensor_value_info(n, types[t], ["N", graph.target.width]) for n, t in graph.outputs.items()],
        body.constants,
    )
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="xdesc_jax",
        producer_version=__version__,
    )
    helper.set_model_props(model, graph.metadata)
    return model


def _finish(body: _Body, y: str, alive: str, target: DescriptorSpec) -> None:
    """Raw output -> the graph's outputs, zero where `alive` [N, 1] is false."""
    zero = body.constant(np.float32(0))
    if target.binary:
        body.add("And", body.add("Greater", y, zero), alive, to_name="target")
        body.add("Where", alive, body.add("Sigmoid", y), zero, to_name="probabilities")
        return
    y = body.add("Relu", y) if target.output == "relu" else y
    y = body.unit(y) if target.normalized else y
    body.add("Where", alive, y, zero, to_name="target")


def _told(body: _Body, graph: Graph, layers: Layers, x: str) -> str:
    """What the first network is told of the neighbours of `x`, rows with their frames (see `networks.context`)."""
    from onnx import TensorProto

    width, heads = layers[2][0].shape[1], layers[3][0].shape[1] // layers[2][0].shape[1]
    last, zero = body.constant(np.array([-1], np.int64)), body.constant(np.float32(0))
    there = body.add("Unsqueeze", "mask", last)  # [N, K, 1]
    # What is not there may hold anything, and no product may see it: 0 * NaN is NaN.
    rows = "neighbours"
    rows = body.add("Cast", rows, to=TensorProto.FLOAT) if graph.source.binary else rows
    rows = body.add("Where", there, rows, zero)
    rows = body.unit(rows) if graph.source.normalized else rows
    frames = None
    if "neighbour_frames" in graph.given:
        frames = body.add("Where", there, "neighbour_frames", body.constant(NO_FRAME))
        if not graph.turning:
            rows = body.add("Concat", rows, body.encoded(frames, graph.harmonics), axis=-1)

    def layer(i: int, of: str) -> str:
        return body.linear(of, *layers[i], f"context/{i}", "MatMul")

    tokens = body.add("Relu", body.add("Add", layer(0, rows), layer(1, _geometry(body, frames, there, graph.turning))))
    tokens = body.add(
        "Mul", body.add("Relu", layer(2, tokens)), body.add("Cast", there, to=TensorProto.FLOAT)
    )  # [N, K, W]
    asked = body.add("Reshape", layer(3, x), body.constant(np.array([0, heads, width], np.int64)))
    scores = body.add("MatMul", asked, body.add("Transpose", tokens, perm=[0, 2, 1]))  # [N, H, K]
    scores = body.add("Mul", scores, body.constant(np.float32(width**-0.5)))
    among = body.add("Unsqueeze", "mask", body.constant(np.array([1], np.int64)))
    shares = body.add("Softmax", body.add("Where", among, scores, body.constant(np.float32(FAR))), axis=-1)
    means = body.add("MatMul", shares, tokens)
    means = body.add("Reshape", means, body.constant(np.array([0, heads * width], np.int64)))
    largest = body.add("ReduceMax", tokens, body.constant(np.array([1], np.int64)), keepdims=0)
    return body.add("Concat", means, largest, axis=-1)


def _geometry(body: _Body, frames: str | None, there: str, harmonics: int) -> str:
    """What `networks.context.geometry` makes of the neighbours' frames, if there are some, and the input `offsets`."""
    offsets, reaches = body.add("Where", there, "offsets", body.constant(np.float32(0))), REACHES_PX
    turned: list[str] = []
    if harmonics:
        assert frames is not None
        offsets, reaches = _seen(body, offsets), REACHES_SIGMA
        angle = body.add("Sub", body.column(frames, 1), _own(body, 1))
        turned = list(body.turns(angle, harmonics))
    near = [body.add("Tanh", body.add("Div", offsets, body.constant(np.float32(reach)))) for reach in reaches]
    squares = body.add("Div", body.add("Mul", offsets, offsets), body.constant(np.float32(reaches[0] ** 2)))
    far = body.add("ReduceSum", squares, body.constant(np.array([-1], np.int64)), keepdims=1)
    far = body.log2(body.add("Add", far, body.constant(np.float32(1))), 1 / 8)
    if frames is None:
        return body.add("Concat", *near, far, body.add("Sub", far, far), axis=-1)
    size = body.log2(body.add("Div", body.column(frames, 0), _own(body, 0)), 1 / 2)
    return body.add("Concat", *near, far, size, *turned, axis=-1)


def _own(body: _Body, index: int) -> str:
    """A column of the keypoints' own frames as their neighbours meet it, [N, 1, 1]."""
    return body.add("Unsqueeze", body.column("frames", index), body.constant(np.array([1], np.int64)))


def _seen(body: _Body, offsets: str) -> str:
    """`offsets` [N, K, 2] as the keypoints themselves see them."""
    sigma, angle = _own(body, 0), _own(body, 1)
    cos, sin = (body.add("Div", body.add(of, angle), sigma) for of in ("Cos", "Sin"))
    x, y = (body.column(offsets, c) for c in (0, 1))
    along = body.add("Add", body.add("Mul", cos, x), body.add("Mul", sin, y))
    across = body.add("Sub", body.add("Mul", cos, y), body.add("Mul", sin, x))
    return body.add("Concat", along, across, axis=-1)


class _Body:
    """Nodes and constants of a graph in the making; values are known by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, to_name: str | None = None, **attributes: Any) -> str:
        """A node with one output; its name."""
        from onnx import helper

        name = to_name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: np.ndarray | np.generic | Sequence[Any], name: str | None = None) -> str:
        """An initialiser; its name."""
        from onnx import numpy_helper

        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def linear(self, x: str, kernel: np.ndarray, bias: np.ndarray, name: str, operator: str = "Gemm") -> str:
        """A layer for rows [N, in]; for [..., in] with the operator MatMul."""
        weights = [self.constant(a, f"{name}/{n}") for n, a in (("kernel", kernel), ("bias", bias))]
        if operator == "Gemm":
            return self.add(operator, x, *weights)
        return self.add("Add", self.add(operator, x, weights[0]), weights[1])

    def column(self, x: str, index: int) -> str:
        """One column of x [..., M], [..., 1]."""
        return self.add("Gather", x, self.constant(np.array([index], np.int64)), axis=-1)

    def log2(self, x: str, factor: float) -> str:
        """factor * log2(x); ONNX has the natural logarithm."""
        return self.add("Mul", self.add("Log", x), self.constant(np.float32(factor / np.log(2))))

    def encoded(self, frames: str, harmonics: int) -> str:
        """What `networks.frames.encode` makes of frames [..., 2]."""
        sigma, angle = (self.column(frames, c) for c in (0, 1))
        size = self.log2(sigma, 1 / SPREAD)
        size = self.add("Sub", size, self.constant(np.float32(MIDDLE / SPREAD)))
        return self.add("Concat", *self.turns(angle, harmonics), size, axis=-1)

    def turns(self, angle: str, harmonics: int) -> tuple[str, str]:
        """cos and sin of 1 to `harmonics` times an angle [..., 1]."""
        turns = self.add("Mul", angle, self.constant(np.arange(1, harmonics + 1, dtype=np.float32)[None]))
        return self.add("Cos", turns), self.add("Sin", turns)

    def unit(self, x: str) -> str:
        """Rows [..., D] of unit length; zero rows stay zero."""
        one, columns = self.constant(np.float32(1)), self.constant(np.array([-1], np.int64))
        norm = self.add("ReduceL2", x, columns, keepdims=1)
        positive = self.add("Greater", norm, self.constant(np.float32(0)))
        return self.add("Div", x, self.add("Where", positive, norm, one))
