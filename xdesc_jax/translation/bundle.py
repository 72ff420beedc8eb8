"""Model files: the only reader and writer of the format of a trained translator.

In: folded networks, descriptor specs and what is known about the training. Out: one file that needs numpy and
safetensors alone, or numpy alone (.npz with the same tensors and header, see `arrays`), with JSON in its header
and a sample of rows with expected results for a self-check.

Tensors of the file, all float32 (weights may be float16) but the stored rows of the sample:
    encoder/<name>/<layer>/kernel [in, out], .../bias [out]      descriptor -> embedding
    decoder/<name>/<layer>/...                                   embedding -> descriptor
    pair/<source>/<target>/<layer>/...                           descriptor -> descriptor (pair networks)
    statistics/<name>/mean [D], .../std [D], .../photo_covariance [D, D]     see `deviation.RowStatistics`
    sample/<name>/input [n, stored_width]                        rows in their stored form
    sample/<name>/embedding [n, E], sample/<source>/to/<target> [n, D]   what the networks make of them

Version 1 is as above. In version 2 each kernel is int8 and stands for kernel * scale:
    <network>/<layer>/scale [out] float32; the statistics' photo_covariance is float16
Version 3 is of a joint space of frame 'image': its header has an entry `frame`, {"space", "harmonics", "log2_sigma"};
networks to and from descriptors of frame 'keypoint' take what `networks.frames.encode` makes of a frame behind their
other input; and
    sample/<name>/frames [n, 2]                                  sigma px and orientation of the sample's keypoints
Version 4 has encoders that look at the photo's other rows: its header has an entry `context`, {"nearest", "larger",
"width", "heads"} (see `networks.context`); an encoder of a descriptor with context takes what `context.pool` gives
behind its row and frame; the sample's rows are of one photo, and each other's neighbours; and
    context/<name>/<i>/kernel, .../bias                          the four layers, in the order of `context.LAYERS`
    sample/<name>/positions [n, 2]                               px of the sample's keypoints
Version 5 has such encoders of descriptors of frame 'image', too: they look at their nearest neighbours alone.
Version 6 has them in a joint space of frame 'keypoint': the entry `frame` is there without "log2_sigma", rows go in
without their frames, and `context.geometry` tells how neighbours are turned, too.
Files are written in the oldest version that can hold them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax.config import ContextConfig
from xdesc_jax.descriptors import DescriptorSpec, embedding_spec
from xdesc_jax.files import arrays
from xdesc_jax.files import tensors as tensor_file
from xdesc_jax.files.whole import json_text
from xdesc_jax.networks import context as context_form
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.translation import parts
from xdesc_jax.translation import ratios as ratio_keys
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.parity import ParitySample as ParitySample
from xdesc_jax.translation.parts import Layers as Layers

FORMAT = "xdesc-translator"
VERSION = 6
# The oldest that hold models without context, and with context of descriptors of frame 'keypoint' alone, or of any, in
# a space of frame 'image'.
_FLOAT_VERSION, _INT8_VERSION, _FRAMED_VERSION, _CONTEXT_VERSION, _EVERY_VERSION = 1, 2, 3, 4, 5
KINDS = ("encoder_decoder", "pair")
CONTEXT_FIELDS = ("nearest", "larger", "width", "heads")  # of a ContextConfig: what a finished model needs
_MOST_NEIGHBOURS = 4096  # a damaged header may ask for any number


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A trained translator with batch normalisation folded into its layers.

    Attributes:
        kind: 'encoder_decoder' (one encoder and one decoder a descriptor) or 'pair' (one network an ordered
            pair, no joint space).
        specs: descriptor name -> spec.
        embedding_width: E; 0 for pair networks.
        networks: 'encoder/<name>', 'decoder/<name>' or 'pair/<source>/<target>' -> layers, ReLU between.
        statistics: descriptor name -> what its training rows look like.
        sample: rows for the self-check.
        config: the training configuration.
        provenance: where the weights come from (data, dates, versions, scores).
        space_id: 12 hex digits that name the joint space; derived from the encoders where not given, None
            for pair networks.
        ratios: calibrated ratio thresholds by the keys of `xdesc_jax.translation.ratios`; none in older files.
        frame: of the joint space, 'keypoint' or 'image' (see `networks.frames`).
        harmonics: of the orientations that networks take in a space of frame 'image'.
        log2_sigma: mean of log2 of the training keypoints' sigmas, for a check of frames; None where not known.
        contexts: descriptor name -> the four layers by which its encoder looks at the photo's other rows.
        context: how it does; None where no encoder does.
        storage: dtype of the weights in the file that it was read from, 'float32', 'float16' or 'int8'.

    Raises:
        ValueError: shapes that do not chain, values that are not finite, names without a spec, ratios of
            what the networks do not make, or context of what takes none.
    """

    kind: str
    specs: dict[str, DescriptorSpec]
    embedding_width: int
    networks: dict[str, Layers]
    statistics: dict[str, RowStatistics] = dataclasses.field(default_factory=dict)
    sample: ParitySample = dataclasses.field(default_factory=ParitySample)
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    space_id: str | None = None
    ratios: dict[str, float] = dataclasses.field(default_factory=dict)
    frame: str = frame_form.KEYPOINT
    harmonics: int = frame_form.HARMONICS
    log2_sigma: float | None = None
    contexts: dict[str, Layers] = dataclasses.field(default_factory=dict)
    context: ContextConfig | None = None
    storage: parts.Dtype = dataclasses.field(default="float32", compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, expected one of {KINDS}")
        if not self.networks:
            raise ValueError("holds no network, expected at least one")
        if self.frame not in (frame_form.KEYPOINT, frame_form.IMAGE) or self.harmonics not in range(1, 65):
            raise ValueError(
                f"frame is {self.frame!r} with {self.harmonics!r} harmonics, expected 'keypoint' or 'image'"
            )
        for name, spec in self.specs.items():
            if name != spec.name:
                raise ValueError(f"the spec under {name!r} is named {spec.name!r}")
        self._check_contexts()
        for name, layers in self.networks.items():
            self._check_network(name, layers)
        for name, statistics in self.statistics.items():
            statistics.check(self._spec(name, "statistics").width, f"statistics/{name}")
        self._check_ratios()
        whole = isinstance(self.embedding_width, int) and not isinstance(self.embedding_width, bool)
        if not whole or not isinstance(self.space_id, (str, type(None))):
            found = f"{self.embedding_width!r} and {self.space_id!r}"
            raise ValueError(f"embedding width and space id are {found}, expected a whole number and a text")
        self.sample.check(self.specs, self.embedding_width)
        if self.kind == "encoder_decoder" and self.space_id is None:
            object.__setattr__(self, "space_id", space_id(self.networks, self.contexts, self.context))

    @property
    def embedding_spec(self) -> DescriptorSpec | None:
        """Spec of the joint space's rows; None for pair networks."""
        return embedding_spec(self.space_id, self.embedding_width) if self.space_id else None

    def takes_frames(self, network: str) -> bool:
        """Whether a network is told the frames of the keypoints."""
        return frame_form.takes_frames(network, self.specs, self.frame)

    def takes_context(self, network: str) -> bool:
        """Whether a network looks at the photo's other rows."""
        return network.removeprefix("encoder/") in self.contexts and network.startswith("encoder/")

    @property
    def turning(self) -> int:
        """Harmonics by which context tells how neighbours are turned, see `context.turning`."""
        return context_form.turning(self.frame, self.harmonics)

    def weights(self) -> dict[str, Layers]:
        """All layers: those of networks by their names, those of contexts as 'context/<name>'."""
        return self.networks | {parts.CONTEXT + name: layers for name, layers in self.contexts.items()}

    def _spec(self, name: str, of: str) -> DescriptorSpec:
        if name not in self.specs:
            raise ValueError(f"{of} names descriptor {name!r}, expected one of {sorted(self.specs)}")
        return self.specs[name]

    def _ends(self, network: str) -> tuple[int, int]:
        """(input width, output width) that a network of this name must have."""
        match network.split("/"):
            case ["encoder", name] if self.kind == "encoder_decoder":
                return self._spec(name, network).width, self.embedding_width
            case ["decoder", name] if self.kind == "encoder_decoder":
                return self.embedding_width, self._spec(name, network).width
            case ["pair", source, target] if self.kind == "pair":
                return self._spec(source, network).width, self._spec(target, network).width
        raise ValueError(f"network {network!r} has no place in a model of kind {self.kind!r}")

    def _check_network(self, name: str, layers: Layers) -> None:
        first, last = self._ends(name)
        first += frame_form.width(self.harmonics) * self.takes_frames(name)
        if self.takes_context(name) and self.context is not None:
            first += context_form.output_width(self.context.width, self.context.heads)
        if not layers:
            raise ValueError(f"network {name!r} has no layer")
        width = first
        for i, (kernel, bias) in enumerate(layers):
            out = last if i == len(layers) - 1 else kernel.shape[-1]
            if kernel.shape != (width, out) or bias.shape != (out,):
                raise ValueError(
                    f"{name}/{i}: kernel {kernel.shape} and bias {bias.shape}, expected ({width}, {out}) and ({out},)"
                )
            if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
                raise ValueError(f"{name}/{i} holds a value that is not finite")
            width = out

    def _check_contexts(self) -> None:
        if not self.contexts:
            object.__setattr__(self, "context", None)
            return
        form = form_of(self.context)
        if form is None or any(type(n) is not int for n in form.values()):
            raise ValueError(f"context is {form}, expected whole numbers {', '.join(CONTEXT_FIELDS)}")
        if form["nearest"] + form["larger"] > _MOST_NEIGHBOURS:
            raise ValueError(f"context is {form}, expected at most {_MOST_NEIGHBOURS} neighbours")
        for name, layers in self.contexts.items():
            if (network := f"encoder/{name}") not in self.networks:
                able = ", ".join(sorted(n for n in self.networks if n.startswith("encoder/"))) or "there is none"
                raise ValueError(f"context of {name!r}, expected of a descriptor with an encoder: {able}")
            row_width = self._spec(name, "context").width
            row_width += frame_form.width(self.harmonics) * self.takes_frames(network)
            found = [(kernel.shape, bias.shape) for kernel, bias in layers]
            shapes = context_form.shapes(row_width, form["width"], form["heads"], self.turning)
            if found != (expected := [((a, b), (b,)) for a, b in shapes]):
                raise ValueError(f"context/{name}: kernels and biases {found}, expected {expected}")
            if not all(np.isfinite(a).all() for layer in layers for a in layer):
                raise ValueError(f"context/{name} holds a value that is not finite")

    def _check_ratios(self) -> None:
        ratio_keys.check(self.ratios)
        possible = ratio_keys.possible(self.networks)
        for name in self.ratios:
            if name not in possible:
                raise ValueError(f"ratio of {name!r}, expected one of {', '.join(sorted(possible))}")

    def save(self, path: Path | str, dtype: str = "float32") -> Path:
        """Writes the model file, whole or not at all.

        Args:
            path: .npz, or .safetensors.
            dtype: of the weights: float32, float16 or int8. A model that `quantization.quantized` made is written as
                it is; of another, the file holds what is nearest.
        """
        tensors = parts.tensors(self.weights(), self.statistics, self.sample)
        return _write(path, parts.with_weights(tensors, dtype), self._header(dtype))

    def _header(self, dtype: str) -> dict[str, str]:
        # safetensors takes strings alone; each value but the first two is JSON.
        layers = {
            name: {
                "widths": [layers[0][0].shape[0], *(len(bias) for _, bias in layers)],
                "hidden_activation": "relu",
                "output_activation": "none" if name.startswith("encoder/") else self.specs[name.split("/")[-1]].output,
            }
            for name, layers in self.networks.items()
        }
        values = {
            "kind": self.kind,
            "specs": [spec.to_dict() for spec in self.specs.values()],
            "space_id": self.space_id,
            "embedding_width": self.embedding_width,
            "layers": layers,
            "config": self.config,
            "provenance": self.provenance,
            "ratios": self.ratios,
        }
        version = _INT8_VERSION if dtype == "int8" else _FLOAT_VERSION
        if self.frame != frame_form.KEYPOINT:
            version = _FRAMED_VERSION
            values["frame"] = {"space": self.frame, "harmonics": self.harmonics, "log2_sigma": self.log2_sigma}
        if (form := form_of(self.context)) is not None:
            version = _EVERY_VERSION if _whose(self.contexts, self.specs) == "every" else _CONTEXT_VERSION
            values["context"] = form
            if self.frame == frame_form.KEYPOINT:
                version = VERSION
                values["frame"] = {"space": self.frame, "harmonics": self.harmonics}
        texts = {name: json_text(value, f"{name} of the model file") for name, value in values.items()}
        return {"format": FORMAT, "version": str(version), **texts}


def load(path: Path | str) -> Bundle:
    """Reads a model file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: cut short, not a model file of this package, a newer version, or tensors that do not fit
            its header.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such model file")
    from safetensors import SafetensorError

    try:
        return _parse(*_read(path))
    except SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file, or cut short ({error})") from error
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: damaged model file ({type(error).__name__}: {error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_ratios(path: Path | str, out: Path | str, ratios: Mapping[str, float]) -> Path:
    """Writes the model file `path` as `out` (which may be `path`) with these ratios in place of its own.

    All else stays as it is, and tensors byte for byte, float16 ones too.

    Raises:
        FileNotFoundError, ValueError: as `load`, and ratios that do not fit the model.
    """
    bundle = load(path)
    try:
        dataclasses.replace(bundle, ratios=dict(ratios))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    header, tensors = _read(Path(path))
    return _write(out, tensors, header | {"ratios": json.dumps(dict(ratios))})


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Header entries and tensors of either kind of file, once the header says that this package reads them."""
    if path.suffix == ".npz":
        header, tensors = arrays.read(path)
        _check_format(header)
        return header, tensors
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        header = file.metadata() or {}
        _check_format(header)
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict


def _write(path: Path | str, tensors: Mapping[str, np.ndarray], header: Mapping[str, str]) -> Path:
    kind = arrays if Path(path).suffix == ".npz" else tensor_file
    return kind.write(path, tensors, header)


def space_id(
    networks: Mapping[str, Layers], contexts: Mapping[str, Layers] | None = None, context: ContextConfig | None = None
) -> str:
    """12 hex digits that name the space which these encoders map to: SHA-256 of their tensors and their context."""
    digest = hashlib.sha256()
    named = {name: networks[name] for name in sorted(networks) if name.startswith("encoder/")}
    for name, layers in [*named.items(), *((parts.CONTEXT + n, of) for n, of in sorted((contexts or {}).items()))]:
        digest.update(name.encode())
        for kernel, bias in layers:
            digest.update(np.ascontiguousarray(kernel, "<f4").tobytes())
            digest.update(np.ascontiguousarray(bias, "<f4").tobytes())
    if contexts:
        digest.update(json.dumps(form_of(context)).encode())
    return digest.hexdigest()[:12]


def form_of(context: ContextConfig | None) -> dict[str, int] | None:
    """Of the settings of context those that a finished model needs."""
    return None if context is None else {field: getattr(context, field) for field in CONTEXT_FIELDS}


def _whose(contexts: Mapping[str, Layers], specs: Mapping[str, DescriptorSpec]) -> Literal["keypoint", "every"]:
    """Whose encoders look at neighbours, as `ContextConfig.of` says it."""
    framed = all(specs[name].frame == frame_form.KEYPOINT for name in contexts)
    return "keypoint" if framed else "every"


def _check_format(header: Mapping[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise ValueError(f"format is {header.get('format')!r}, expected {FORMAT!r}")
    version = header.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise ValueError(f"format version is {version!r}, this package reads up to {VERSION}")


def _parse(header: Mapping[str, str], tensors: dict[str, np.ndarray]) -> Bundle:
    specs = [DescriptorSpec.from_dict(fields) for fields in json.loads(header["specs"])]
    names, of = [spec.name for spec in specs], {spec.name: spec for spec in specs}
    storage = parts.weights_dtype(tensors)
    networks = parts.read_networks(tensors, json.loads(header["layers"]))
    contexts = parts.read_contexts(tensors, names)
    statistics, sample = parts.read_statistics(tensors, names), parts.read_sample(tensors, names)
    if tensors:
        raise ValueError(f"holds tensors that its header does not name: {sorted(tensors)[:5]}")
    about = {entry: json.loads(header[entry], parse_constant=lambda _: None) for entry in ("config", "provenance")}
    for entry, value in about.items():
        if not isinstance(value, dict):
            raise ValueError(f"{entry} is a JSON {type(value).__name__}, expected an object")
    frame: dict[str, Any] = json.loads(header.get("frame", "{}"))
    form = json.loads(header["context"]) if "context" in header else None
    return Bundle(
        kind=json.loads(header["kind"]),
        specs=of,
        embedding_width=json.loads(header["embedding_width"]),
        networks=networks,
        statistics=statistics,
        sample=sample,
        config=about["config"],
        provenance=about["provenance"],
        space_id=json.loads(header["space_id"]),
        ratios=json.loads(header.get("ratios", "{}")),
        frame=frame.get("space", frame_form.KEYPOINT),
        harmonics=frame.get("harmonics", frame_form.HARMONICS),
        log2_sigma=frame.get("log2_sigma"),
        contexts=contexts,
        context=None if form is None else ContextConfig(_whose(contexts, of), **{f: form[f] for f in CONTEXT_FIELDS}),
        storage=storage,
    )
