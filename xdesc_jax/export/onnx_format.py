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
from xdesc_jax.export.translation_graph import Graph, Run
from xdesc_jax.networks.frames import MIDDLE, SPREAD

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
    for network, layers, takes_unit_rows in graph.steps:
        x = body.unit(x) if takes_unit_rows else x
        if network in graph.framed:
            x = body.add("Concat", x, body.encoded("frames", graph.harmonics), axis=1)
        for i, (kernel, bias) in enumerate(layers):
            x = body.add("Relu", x) if i else x
            weights = [body.constant(a, f"{network}/{i}/{n}") for n, a in (("kernel", kernel), ("bias", bias))]
            x = body.add("Gemm", x, *weights)
    _finish(body, x, alive, graph.target)
    source_type = TensorProto.BOOL if graph.source.binary else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("source", source_type, ["N", graph.source.width])]
    if graph.frames is not None:
        inputs.append(helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["N", graph.frames.shape[1]]))
    made = helper.make_graph(
        body.nodes,
        graph.name,
        inputs,
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

    def encoded(self, frames: str, harmonics: int) -> str:
        """What `networks.frames.encode` makes of frames [N, 2]."""
        sigma, angle = (self.add("Gather", frames, self.constant(np.array([c], np.int64)), axis=1) for c in (0, 1))
        turns = self.add("Mul", angle, self.constant(np.arange(1, harmonics + 1, dtype=np.float32)[None]))
        # log2(sigma) as the natural logarithm, which is what ONNX has.
        size = self.add("Mul", self.add("Log", sigma), self.constant(np.float32(1 / (np.log(2) * SPREAD))))
        size = self.add("Sub", size, self.constant(np.float32(MIDDLE / SPREAD)))
        return self.add("Concat", self.add("Cos", turns), self.add("Sin", turns), size, axis=1)

    def unit(self, x: str) -> str:
        """Rows of unit length; zero rows stay zero."""
        one, columns = self.constant(np.float32(1)), self.constant(np.array([1], np.int64))
        norm = self.add("ReduceL2", x, columns, keepdims=1)
        positive = self.add("Greater", norm, self.constant(np.float32(0)))
        return self.add("Div", x, self.add("Where", positive, norm, one))
