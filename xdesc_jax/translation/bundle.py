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
Files are written in the oldest version that can hold them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, embedding_spec
from xdesc_jax.files import arrays
from xdesc_jax.files import tensors as tensor_file
from xdesc_jax.files.whole import json_text
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.translation import ratios as ratio_keys
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.int8 import from_int8, to_int8
from xdesc_jax.translation.parity import ParitySample as ParitySample

FORMAT = "xdesc-translator"
VERSION = 3
_FLOAT_VERSION, _INT8_VERSION = 1, 2  # the oldest that hold models without frames
KINDS = ("encoder_decoder", "pair")
NETWORKS = ("encoder/", "decoder/", "pair/")

Layers = Sequence[tuple[np.ndarray, np.ndarray]]  # (kernel [in, out], bias [out]) in order, ReLU between


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A trained translator with batch normalisation folded into its layers.

    Attributes:
        kind: 'encoder_decoder' (one encoder and one decoder a descriptor) or 'pair' (one network an ordered
            pair, no joint space).
        specs: descriptor name -> spec.
        embedding_width: E; 0 for pair networks.
        networks: 'encoder/<name>', 'decoder/<name>' or 'pair/<source>/<target>' -> layers.
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

    Raises:
        ValueError: shapes that do not chain, values that are not finite, names without a spec, or ratios of
            what the networks do not make.
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
            object.__setattr__(self, "space_id", space_id(self.networks))

    @property
    def embedding_spec(self) -> DescriptorSpec | None:
        """Spec of the joint space's rows; None for pair networks."""
        return embedding_spec(self.space_id, self.embedding_width) if self.space_id else None

    def takes_frames(self, network: str) -> bool:
        """Whether a network is told the frames of the keypoints."""
        return frame_form.takes_frames(network, self.specs, self.frame)

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
        tensors, header = self._tensors(), self._header()
        if dtype == "int8":
            header["version"] = str(max(_INT8_VERSION, int(header["version"])))
            tensors = _with_int8(tensors)
        else:
            tensors |= {name: np.asarray(x, dtype) for name, x in tensors.items() if name.startswith(NETWORKS)}
        return _write(path, tensors, header)

    def _header(self) -> dict[str, str]:
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
        framed = self.frame != frame_form.KEYPOINT
        if framed:
            values["frame"] = {"space": self.frame, "harmonics": self.harmonics, "log2_sigma": self.log2_sigma}
        texts = {name: json_text(value, f"{name} of the model file") for name, value in values.items()}
        return {"format": FORMAT, "version": str(VERSION if framed else _FLOAT_VERSION), **texts}

    def _tensors(self) -> dict[str, np.ndarray]:
        tensors: dict[str, np.ndarray] = {}
        for name, layers in self.networks.items():
            for i, (kernel, bias) in enumerate(layers):
                tensors |= {f"{name}/{i}/kernel": kernel, f"{name}/{i}/bias": bias}
        for name, statistics in self.statistics.items():
            tensors |= {f"statistics/{name}/{field}": value for field, value in statistics.arrays().items()}
        tensors |= {f"sample/{name}/embedding": rows for name, rows in self.sample.embeddings.items()}
        tensors |= {f"sample/{s}/to/{t}": rows for (s, t), rows in self.sample.translations.items()}
        tensors |= {f"sample/{name}/frames": rows for name, rows in self.sample.frames.items()}
        tensors = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
        inputs = {f"sample/{name}/input": np.ascontiguousarray(rows) for name, rows in self.sample.inputs.items()}
        return tensors | inputs


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


def _with_int8(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    small: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        if name.startswith(NETWORKS) and name.endswith("/kernel"):
            small[name], small[name.removesuffix("kernel") + "scale"] = to_int8(value)
        else:
            small[name] = value.astype(np.float16) if name.endswith("/photo_covariance") else value
    return small


def space_id(networks: Mapping[str, Layers]) -> str:
    """12 hex digits that name the space which these encoders map to: SHA-256 of their tensors."""
    digest = hashlib.sha256()
    for name in sorted(n for n in networks if n.startswith("encoder/")):
        digest.update(name.encode())
        for kernel, bias in networks[name]:
            digest.update(np.ascontiguousarray(kernel, "<f4").tobytes())
            digest.update(np.ascontiguousarray(bias, "<f4").tobytes())
    return digest.hexdigest()[:12]


def _check_format(header: Mapping[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise ValueError(f"format is {header.get('format')!r}, expected {FORMAT!r}")
    version = header.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise ValueError(f"format version is {version!r}, this package reads up to {VERSION}")


def _parse(header: Mapping[str, str], tensors: dict[str, np.ndarray]) -> Bundle:
    specs = [DescriptorSpec.from_dict(fields) for fields in json.loads(header["specs"])]
    networks: dict[str, Layers] = {}
    for name, description in json.loads(header["layers"]).items():
        if description["hidden_activation"] != "relu":
            raise ValueError(f"{name}: hidden activation is {description['hidden_activation']!r}, expected 'relu'")
        networks[name] = [
            (_kernel(tensors, f"{name}/{i}"), _floats(tensors, f"{name}/{i}/bias"))
            for i in range(len(description["widths"]) - 1)
        ]
    statistics, sample = {}, ParitySample()
    for spec in specs:
        at = f"statistics/{spec.name}"
        if f"{at}/mean" in tensors:
            covariance = f"{at}/photo_covariance"
            statistics[spec.name] = RowStatistics(
                _floats(tensors, f"{at}/mean"),
                _floats(tensors, f"{at}/std"),
                _floats(tensors, covariance) if covariance in tensors else None,
            )
        if f"sample/{spec.name}/input" in tensors:
            sample.inputs[spec.name] = tensors.pop(f"sample/{spec.name}/input")
        if f"sample/{spec.name}/embedding" in tensors:
            sample.embeddings[spec.name] = _floats(tensors, f"sample/{spec.name}/embedding")
        if f"sample/{spec.name}/frames" in tensors:
            sample.frames[spec.name] = _floats(tensors, f"sample/{spec.name}/frames")
        for other in specs:
            if (key := f"sample/{spec.name}/to/{other.name}") in tensors:
                sample.translations[spec.name, other.name] = _floats(tensors, key)
    if tensors:
        raise ValueError(f"holds tensors that its header does not name: {sorted(tensors)[:5]}")
    about = {entry: json.loads(header[entry], parse_constant=lambda _: None) for entry in ("config", "provenance")}
    for entry, value in about.items():
        if not isinstance(value, dict):
            raise ValueError(f"{entry} is a JSON {type(value).__name__}, expected an object")
    frame: dict[str, Any] = json.loads(header.get("frame", "{}"))
    return Bundle(
        kind=json.loads(header["kind"]),
        specs={spec.name: spec for spec in specs},
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
    )


def _kernel(tensors: dict[str, np.ndarray], layer: str) -> np.ndarray:
    """Takes a layer's kernel out of `tensors` as float32, with its scale where it has one."""
    if f"{layer}/scale" not in tensors:
        return _floats(tensors, f"{layer}/kernel")
    q, scale = tensors.pop(f"{layer}/kernel", np.empty(0)), _floats(tensors, f"{layer}/scale")
    if q.dtype != np.int8 or q.ndim != 2 or scale.shape != q.shape[1:]:
        raise ValueError(
            f"{layer}: kernel {q.dtype} {q.shape} and scale {scale.shape}, expected int8 [in, out] and [out]"
        )
    if not np.isfinite(scale).all():
        raise ValueError(f"{layer}/scale holds a value that is not finite")
    return from_int8(q, scale)


def _floats(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Takes a tensor out of `tensors` as float32."""
    if name not in tensors:
        raise ValueError(f"tensor {name!r} is missing")
    value = tensors.pop(name)
    if value.dtype not in (np.float16, np.float32):
        raise ValueError(f"tensor {name!r} has dtype {value.dtype}, expected float32 or float16")
    return value.astype(np.float32)
