"""Networks: one MLP encoder and decoder a descriptor, or one MLP per ordered pair.

In: canonical descriptors, float32 [B, D] (bits as 0 and 1), and in a space of frame 'image' the keypoints' frames
[B, 2] (see `frames`), which networks to and from descriptors of frame 'keypoint' take behind their other input;
encoders with context also take what lies around (see `context`). Out: unit embeddings [B, E], and raw decoder outputs
[B, D'] that `finish` turns into descriptors. Flax Linen modules; what lies between products is `batch_norm`'s.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.config import ContextConfig, ModelConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks import context as context_form
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks.batch_norm import SyncBatchNormRelu
from xdesc_jax.networks.context import Around, Layers
from xdesc_jax.networks.folding import BN_EPSILON

Variables = dict[str, Any]


def l2_norm(x: jax.Array) -> jax.Array:
    """Row norms [..., D] -> [...]; the gradient at a zero row is zero, not NaN or inf."""
    squared = jnp.sum(x * x, axis=-1)
    # Both branches of a `where` are differentiated: sqrt must not see the zero either.
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def unit(x: jax.Array) -> jax.Array:
    """Rows scaled to unit length; zero rows stay zero, with zero gradient."""
    norm = l2_norm(x)[..., None]
    return x / jnp.where(norm > 0, norm, 1.0)


def finish(y: jax.Array, spec: DescriptorSpec) -> jax.Array:
    """Raw decoder output -> descriptor: ReLU and unit length as the spec says; bits stay logits."""
    if spec.output == "relu":
        y = nn.relu(y)
    return unit(y) if spec.normalized else y


@jax.custom_vjp
def bfloat16_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [B, N] @ kernel [N, M] with bfloat16 operands and float32 sums, forward and backward."""
    return _dot(x, kernel, 1, 0)


def _dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return lax.dot_general(a, b, (((axis_a,), (axis_b,)), ((), ())), preferred_element_type=jnp.float32)


bfloat16_matmul.defvjp(
    lambda x, kernel: (_dot(x, kernel, 1, 0), (x, kernel)),
    lambda saved, g: (_dot(g, saved[1], 1, 1), _dot(saved[0], g, 0, 0)),
)


class Linear(nn.Module):
    """x [B, N] -> x @ kernel (+ bias), [B, M]."""

    width: int
    matmul: str = "float32"
    bias: bool = True
    precision: str = "default"  # of float32 operands

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", nn.initializers.lecun_uniform(), (x.shape[-1], self.width))
        if self.matmul == "bfloat16":  # "auto" is settled before a step is built
            product = bfloat16_matmul(x, kernel)
        else:
            product = jnp.matmul(x, kernel, precision=self.precision)
        return product + self.param("bias", nn.initializers.zeros, (self.width,)) if self.bias else product


class MLP(nn.Module):
    """Linear -> batch norm -> ReLU for each hidden width, then a plain Linear (paper section 4.4).

    Batch norm takes any bias before it out again, so hidden layers before one have none: its gradient would be
    rounding noise, which Adam turns into full steps.
    """

    hidden: tuple[int, ...]
    width: int
    matmul: str = "float32"
    normalization: str = "batch"
    precision: str = "default"
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None, train: bool = False) -> jax.Array:
        linear = partial(Linear, matmul=self.matmul, precision=self.precision)
        for i, hidden in enumerate(self.hidden):
            x = linear(hidden, bias=self.normalization == "none", name=f"linear{i}")(x)
            if self.normalization == "batch":
                x = SyncBatchNormRelu(self.axis_name, name=f"norm{i}")(x, mask, train)
            else:
                x = nn.relu(x)
        return linear(self.width, name=f"linear{len(self.hidden)}")(x)


class Affine(nn.Module):
    """Kernel [N, M] and bias [M] themselves, for products that are not of [B, N]."""

    inputs: int
    width: int

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array]:
        kernel = self.param("kernel", nn.initializers.lecun_uniform(), (self.inputs, self.width))
        return kernel, self.param("bias", nn.initializers.zeros, (self.width,))


class Context(nn.Module):
    """Rows with their frames [B, N] and what lies around them -> `context.pool` [B, (heads + 1) * width]."""

    width: int
    heads: int
    matmul: str = "float32"
    precision: str = "default"

    @nn.compact
    def __call__(self, x: jax.Array, around: Around) -> jax.Array:
        harmonics = (around.geometry.shape[-1] - context_form.GEOMETRY) // 2
        shapes = context_form.shapes(x.shape[-1], self.width, self.heads, harmonics)
        layers = [Affine(*shape, name=f"linear{i}")() for i, shape in enumerate(shapes)]
        return pooled(layers, x, around, self.matmul, self.precision)


def pooled(
    layers: Layers, x: jax.Array, around: Around, matmul: str = "float32", precision: str = "highest"
) -> jax.Array:
    """`context.pool` of neighbours given by their rows; of float32 operands, all products are of one precision."""

    def product(a: jax.Array, kernel: jax.Array) -> jax.Array:
        if matmul != "bfloat16":
            return jnp.matmul(a, kernel)
        return bfloat16_matmul(a.reshape(-1, a.shape[-1]), kernel).reshape(*a.shape[:-1], -1)

    with jax.default_matmul_precision(precision):
        seen = context_form.project(layers, around.rows, product)
        return jnp.asarray(context_form.pool(layers, x, seen, around.geometry, around.mask, jnp, product))


def look_around(
    rows: jax.Array, frames: Any, other_frames: Any, offsets: Any, mask: Any, harmonics: int, space: str
) -> Around:
    """What lies around N keypoints.

    Args:
        rows: canonical rows [N, K, D] of their neighbours.
        frames: of the keypoints [N, 2]; None, and so `other_frames`, where rows are of frame 'image'.
        other_frames, offsets: of the neighbours [N, K, 2], see `context.geometry`; sigmas over 0, also where none is.
        mask: [N, K] bool, which neighbours there are.
        harmonics, space: those of the joint space and its frame; in one of frame 'keypoint' rows go without frames.
    """
    turning = context_form.turning(space, harmonics)
    geometry = context_form.geometry(frames, other_frames, offsets, jnp, turning)
    if frames is not None and not turning:
        rows = frame_form.behind(rows, other_frames, harmonics, jnp)
    return Around(rows, geometry, mask)


class Networks(NamedTuple):
    """What a model consists of; networks are keyed 'encoder/<name>', 'decoder/<name>' or 'pair/<s>/<t>'.

    An encoder with context has another one, 'context/<name>', whose result it takes behind its other input.
    """

    kind: str
    names: tuple[str, ...]
    specs: dict[str, DescriptorSpec]
    modules: dict[str, MLP | Context]  # those with variables
    input_widths: dict[str, int]
    frozen: Mapping[str, Sequence[Mapping[str, Any]]] = {}  # the others, as layers; see `forward`
    frame: str = frame_form.KEYPOINT  # of the joint space
    harmonics: int = frame_form.HARMONICS
    context: ContextConfig = ContextConfig()
    teacher: Networks | None = None  # whose embeddings the encoders learn to give, where there are no decoders

    def takes_context(self, name: str) -> bool:
        """Whether a network is told what lies around the keypoints."""
        key = context_key(name)
        return name.startswith("encoder/") and (key in self.modules or key in self.frozen)

    @property
    def with_context(self) -> tuple[str, ...]:
        """The descriptors whose encoders are."""
        return tuple(name for name in self.names if self.takes_context(f"encoder/{name}"))


def context_key(encoder: str) -> str:
    """'context/<name>' of 'encoder/<name>'."""
    return "context/" + encoder.partition("/")[2]


def build_networks(specs: Mapping[str, DescriptorSpec], config: ModelConfig, axis_name: str | None = None) -> Networks:
    """The modules for these descriptors.

    Args:
        specs: descriptors by name, in the order in which embeddings are stacked.
        config: widths and kind.
        axis_name: the mapped axis over which batch norm is synchronised, inside a mapped step.

    Raises:
        ValueError: descriptors that the frame of the space does not allow, or context that no encoder takes.
    """
    modules: dict[str, MLP | Context] = {}
    inputs: dict[str, int] = {}
    frame = frame_form.space_of(specs, config.frame)
    mlp = partial(
        MLP, matmul=config.matmul, normalization=config.normalization, precision=config.precision, axis_name=axis_name
    )
    if config.kind == "encoder_decoder":
        for name, spec in specs.items():
            hidden = hidden_widths(spec, config)
            modules[f"encoder/{name}"] = mlp(hidden, config.embedding_width)
            modules[f"decoder/{name}"] = mlp(hidden[::-1], spec.width)
            inputs |= {f"encoder/{name}": spec.width, f"decoder/{name}": config.embedding_width}
    else:
        for source in specs:
            for target in specs:
                if source != target:
                    width = pair_hidden_width(specs[source], specs[target], config)
                    modules[f"pair/{source}/{target}"] = mlp((width, width), specs[target].width)
                    inputs[f"pair/{source}/{target}"] = specs[source].width
    for name in modules:
        inputs[name] += frame_form.width(config.harmonics) * frame_form.takes_frames(name, specs, frame)
    for name in encoders_with_context(specs, config, frame):
        around = config.context
        modules[context_key(name)] = Context(around.width, around.heads, config.matmul, config.precision)
        inputs[context_key(name)] = inputs[name]
        inputs[name] += context_form.output_width(around.width, around.heads)
    return Networks(
        config.kind, tuple(specs), dict(specs), modules, inputs, frame=frame, harmonics=config.harmonics,
        context=config.context,
    )  # fmt: skip


def encoders_with_context(specs: Mapping[str, DescriptorSpec], config: ModelConfig, frame: str) -> list[str]:
    """'encoder/<name>' of those that look at the photo's other rows.

    Raises:
        ValueError: the configuration wants context, and the model has no encoder that could take it.
    """
    if config.context.of == "none":
        return []
    framed = [name for name, spec in specs.items() if spec.frame == frame_form.KEYPOINT]
    encoders = [f"encoder/{name}" for name in (framed if config.context.of == "keypoint" else specs)]
    if config.kind == "pair" or not encoders:
        whose = "descriptors of frame 'keypoint'" if config.context.of == "keypoint" else "descriptors"
        raise ValueError(
            f"model.context.of is {config.context.of!r}, expected 'none' in a model of kind {config.kind!r} and frame "
            f"{frame!r} of {', '.join(specs)}: it is for encoders of {whose}"
        )
    return encoders


def freeze(networks: Networks, frozen: Mapping[str, Sequence[Mapping[str, Any]]]) -> Networks:
    """The same model with these networks fixed, as layers for `forward`; the others keep their variables.

    A fixed encoder looks at neighbours if it did when it was trained, whatever the others do.
    """
    blind = {context_key(name) for name in frozen if name.startswith("encoder/")} - set(frozen)
    modules = {name: module for name, module in networks.modules.items() if name not in {*frozen, *blind}}
    held = {name: layers for name, layers in frozen.items() if name in networks.modules}
    return networks._replace(modules=modules, frozen=held)


def hidden_widths(spec: DescriptorSpec, config: ModelConfig) -> tuple[int, ...]:
    """The configuration's widths, for every descriptor or for the two kinds of the paper, else the spec's own."""
    if config.hidden:
        return config.hidden
    chosen: dict[tuple[int, ...], tuple[int, ...]] = {
        (1024, 1024): config.hidden_handcrafted,
        (256, 256): config.hidden_learned,
    }
    return chosen.get(spec.hidden, spec.hidden)


def pair_hidden_width(source: DescriptorSpec, target: DescriptorSpec, config: ModelConfig) -> int:
    """Width h of two hidden layers with as many weights as the source's encoder and target's decoder.

    h solves (D_s + D_t) h + h^2 = weights of the two (supplement, 'Pair vs. encoder-decoder').
    """

    def weights(widths: Sequence[int]) -> int:
        return sum(a * b for a, b in zip(widths, widths[1:], strict=False))

    total = weights([source.width, *hidden_widths(source, config), config.embedding_width])
    total += weights([config.embedding_width, *hidden_widths(target, config)[::-1], target.width])
    both = source.width + target.width
    return max(1, round((math.sqrt(both**2 + 4 * total) - both) / 2))


def name_seed(name: str) -> int:
    """What to fold into a key so that a network draws the same, whichever others the model has."""
    return zlib.crc32(name.encode())


def init_variables(networks: Networks, key: jax.Array) -> Variables:
    """Initial {'params': {network: ...}, 'batch_stats': {network: ...}}."""
    variables: Variables = {"params": {}, "batch_stats": {}}
    for name, module in networks.modules.items():
        own, x = jax.random.fold_in(key, name_seed(name)), jnp.zeros((1, networks.input_widths[name]))
        if isinstance(module, Context):
            told = context_form.shapes(0, 0, 0, context_form.turning(networks.frame, networks.harmonics))[1][0]
            fresh = module.init(own, x, Around(x[:, None], jnp.zeros((1, 1, told)), jnp.ones((1, 1))))
        else:  # initialisation outside the mapped step: nothing to synchronise
            fresh = module.clone(axis_name=None).init(own, x)
        variables["params"][name] = fresh["params"]
        variables["batch_stats"][name] = fresh.get("batch_stats", {})
    return variables


def with_frames(networks: Networks, name: str, x: jax.Array, frames: jax.Array | None) -> jax.Array:
    """What a network takes: rows [S * B, N], and behind them the frames [B, 2] of their keypoints where it takes them.

    Of S rows a keypoint, the rows of all keypoints stand one after the other.
    """
    if not frame_form.takes_frames(name, networks.specs, networks.frame):
        return x
    assert frames is not None, f"{name} takes frames"
    encoded = frame_form.encode(frames, networks.harmonics, jnp)
    return jnp.concatenate([x, jnp.tile(encoded, (len(x) // len(frames), 1))], axis=1)


def with_context(networks: Networks, params: Any, name: str, x: jax.Array, around: Around | None) -> jax.Array:
    """What a network takes: rows [B, N] with their frames, and behind them what lies around where it takes that."""
    if not networks.takes_context(name):
        return x
    assert around is not None, f"{name} takes context"
    key = context_key(name)
    if key in networks.frozen:
        told = pooled([(layer["kernel"], layer["bias"]) for layer in networks.frozen[key]], x, around)
    else:
        told = jnp.asarray(networks.modules[key].apply({"params": params[key]}, x, around))
    return jnp.concatenate([x, told], axis=1)


def apply(
    networks: Networks, variables: Variables, name: str, x: jax.Array, frames: jax.Array | None = None,
    around: Around | None = None,
) -> jax.Array:  # fmt: skip
    """One network with its running statistics: [B, N] -> raw [B, M]."""
    x = with_context(networks, variables["params"], name, with_frames(networks, name, x, frames), around)
    if name in networks.frozen:
        return forward(networks.frozen[name], x)
    own = {kind: variables[kind][name] for kind in ("params", "batch_stats")}
    return jnp.asarray(networks.modules[name].apply(own, x))


def embed(
    networks: Networks, variables: Variables, x: jax.Array, source: str, frames: jax.Array | None = None,
    around: Around | None = None,
) -> jax.Array:  # fmt: skip
    """Canonical rows, with frames [B, 2] and neighbours where the model takes them -> unit embeddings [B, E]."""
    return unit(apply(networks, variables, f"encoder/{source}", x, frames, around))


def translate(
    networks: Networks, variables: Variables, x: jax.Array, source: str, target: str, frames: jax.Array | None = None,
    around: Around | None = None,
) -> jax.Array:  # fmt: skip
    """Canonical rows of `source`, with what networks are told of them -> rows of `target` (logits where binary)."""
    if networks.kind == "pair":
        raw = apply(networks, variables, f"pair/{source}/{target}", x, frames)
    else:
        embedded = embed(networks, variables, x, source, frames, around)
        raw = apply(networks, variables, f"decoder/{target}", embedded, frames)
    return finish(raw, networks.specs[target])


def forward(layers: Sequence[Mapping[str, Any]], x: jax.Array) -> jax.Array:
    """The raw output of one network given as a list of layers, the form in which models are exported.

    Args:
        layers: each {kernel [N, M], bias [M]} and, but for the last, {scale, offset, mean, var} [M].
        x: [B, N] float32.
    """
    for i, layer in enumerate(layers):
        x = jnp.matmul(x, layer["kernel"], precision="highest") + layer["bias"]
        if "mean" in layer:
            x = (x - layer["mean"]) * (lax.rsqrt(layer["var"] + BN_EPSILON) * layer["scale"]) + layer["offset"]
        if i < len(layers) - 1:
            x = nn.relu(x)
    return x
