"""Training configurations: frozen dataclasses, defaults here and nowhere else.

In: a `configs/*.py` file with `get_config()`. Out: a `TrainConfig`, printed, hashed and saved by every run.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import traceback
from pathlib import Path
from typing import Literal, TypeVar

from xdesc_jax import console
from xdesc_jax.console.words import did_you_mean
from xdesc_jax.files.fields import check_finite, wrong_types
from xdesc_jax.files.whole import config_hash

C = TypeVar("C")
_STAGES = {"TrainConfig": "train", "DescriptorConfig": "train-descriptor", "SweepConfig": "sweep"}

Precision = Literal["default", "high", "highest"]  # of a float32 product, in jax's terms


@dataclasses.dataclass(frozen=True)
class ContextConfig:
    """What an encoder is told of the photo's other rows (see `networks.context`)."""

    of: Literal["none", "keypoint", "every"] = "none"
    """Whose encoders: none's (of --init, those that look in its model), those of descriptors of frame 'keypoint', or
    every descriptor's."""
    nearest: int = 12
    """Neighbours: the nearest keypoints."""
    larger: int = 8
    """Further ones: the nearest of those keypoints whose sigma is in a higher octave; of descriptors of frame 'image',
    whose detectors give no sigmas, none."""
    width: int = 192
    """Values that stand for a neighbour."""
    heads: int = 4
    """Questions that a row asks of its neighbours."""
    least_share: float = 0.25
    """In training neighbours are found among a share of their photo's rows, and a row sees a share of those found, both
    drawn evenly from this one to all: maps whose photos were thinned are served, and photos of few keypoints."""

    def neighbours(self, framed: bool) -> tuple[int, int]:
        """How many nearest and how many larger neighbours an encoder looks at that takes frames, or does not."""
        return self.nearest, self.larger if framed else 0

    def __post_init__(self) -> None:
        for field in ("width", "heads"):
            if getattr(self, field) < 1:
                raise ValueError(f"model.context.{field} is {getattr(self, field)}, expected at least 1")
        if min(self.nearest, self.larger) < 0 or self.nearest + self.larger < 1:
            told = f"{self.nearest} and {self.larger}"
            raise ValueError(f"model.context.nearest and larger are {told}, expected 0 or more, and one neighbour")
        if not 0 <= self.least_share <= 1:
            raise ValueError(f"model.context.least_share is {self.least_share}, expected 0 to 1")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The networks."""

    kind: Literal["encoder_decoder", "pair"] = "encoder_decoder"
    """One encoder and decoder a descriptor, or one network per ordered pair (paper section 4.2)."""
    embedding_width: int = 128
    """Values of an embedding in the joint space."""
    hidden: tuple[int, ...] = ()
    """Hidden widths of every encoder, reversed of every decoder; where none are given, each descriptor's own."""
    hidden_handcrafted: tuple[int, ...] = (1024, 1024)
    """Hidden widths where the descriptor's own are (1024, 1024): hand-crafted and binary ones."""
    hidden_learned: tuple[int, ...] = (256, 256)
    """Hidden widths where the descriptor's own are (256, 256)."""
    frame: Literal["auto", "keypoint", "image"] = "auto"
    """Of the joint space: patches turned and scaled with their keypoint, or the photo as it lies, as learned features
    with a detector of their own see it. `auto` is image where a descriptor is, or the model of --init."""
    harmonics: int = 4
    """Multiples of a keypoint's angle, as cosine and sine, that networks between the two frames take."""
    context: ContextConfig = ContextConfig()
    """Which encoders look at the photo's other rows, and how."""
    normalization: Literal["batch", "none"] = "batch"
    """Batch norm behind each hidden layer, as in the paper, or none."""
    matmul: Literal["float32", "bfloat16", "auto"] = "float32"
    """Operand type of the networks' matrix products; sums and parameters stay float32. `auto` is bfloat16 where the
    devices multiply it faster, by a measurement when the run starts, which the run keeps; else float32."""
    precision: Precision = "default"
    """How exactly TPU and GPU multiply the networks' float32 operands: `default` is one pass of bfloat16 on TPU and
    TF32 on newer NVIDIA devices, `high` three passes on TPU and TF32, `highest` float32 itself. A CPU's are float32."""

    def __post_init__(self) -> None:
        if not 1 <= self.harmonics <= 64:  # what a model file can hold
            raise ValueError(f"model.harmonics is {self.harmonics}, expected 1 to 64")
        if self.embedding_width < 1:
            raise ValueError(f"model.embedding_width is {self.embedding_width}, expected at least 1")
        for field in ("hidden", "hidden_handcrafted", "hidden_learned"):
            widths = getattr(self, field)
            # Other types are told when the whole configuration is there.
            if isinstance(widths, tuple) and any(isinstance(width, int) and width < 1 for width in widths):
                raise ValueError(f"model.{field} is {widths}, expected widths of at least 1")


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """L = L^T + alpha L^M + beta L^R."""

    variant: Literal["quadratic", "autoencoder", "linear"] = "quadratic"
    """Pairs used: all, i -> i for the translation, or a random permutation each step."""
    distance: Literal["euclidean", "squared"] = "squared"
    """Distance in the triplet: its square as in the authors' code, or plain as in the paper (results-matching.md)."""
    matching: Literal["triplet", "contrastive"] = "triplet"
    """Form of both matching losses: the paper's triplet with the hardest negative, or the positive against all rows of
    the batch (InfoNCE), which serves better where a row does not tell all of its target, as between frames."""
    temperature: float = 0.05
    """Of the contrastive form, in units of the cosine."""
    negatives: Literal["anchor", "symmetric"] = "anchor"
    """The negative of a pair: nearest to the anchor, as in the paper, or the nearer of those nearest to the anchor and
    to the positive (HardNet)."""
    across_views: bool = False
    """Match each row with that of another photo that shows the same point, as records say that were made with
    --across, in place of the same photo's; needs resident=True. Rows without such another are left out."""
    alpha: float = 0.1
    """Weight of the matching loss."""
    margin: float = 1.0
    """Triplet margin, in units of the distance."""
    beta: float = 0.0
    """Weight of the matching loss in the targets' own spaces, between translations and native rows; 0: none. About 1
    for the last epochs of a trained model; from fresh weights it keeps the joint space from coming about."""
    target_margin: float = 1.0
    """Its margin. Bits count as +-1 / sqrt(width), rows not of unit length in units of their typical length."""
    mining_precision: Precision = "highest"
    """How exactly TPU and GPU compute the similarities that negatives are chosen by; see `model.precision`. With less,
    near ties are decided by rounding, and so by the device and the number of devices."""

    def __post_init__(self) -> None:
        for field in ("alpha", "margin", "beta", "target_margin"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"loss.{field} is {getattr(self, field)}, expected at least 0")
        if not self.temperature > 0:
            raise ValueError(f"loss.temperature is {self.temperature}, expected a number above 0")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Adam, with what may go before and after it."""

    learning_rate: float = 1e-3
    """Step size at its peak."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Constant, or down to zero at the last step by a cosine or a straight line."""
    warmup_steps: int = 0
    """Steps of linear warm-up."""
    b1: float = 0.9
    """Decay of Adam's mean of gradients."""
    b2: float = 0.999
    """Decay of Adam's mean of squared gradients."""
    eps: float = 1e-8
    """Added to the root of the latter."""
    clip_norm: float = 0.0
    """Largest Euclidean norm of all gradients together, to which longer ones are scaled; 0: none."""
    weight_decay: float = 0.0
    """Times the kernels, taken from them with the rate (AdamW); biases and norms have none. 0: none."""
    ema: float = 0.0
    """Decay of the average of weights over the steps, which is what validation, the best checkpoint and export are
    of; in the first steps at most (1 + step) / (10 + step). 0: none, the weights themselves."""

    def __post_init__(self) -> None:
        for field in ("b1", "b2", "ema"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"optimizer.{field} is {getattr(self, field)}, expected 0 to below 1")
        for field in ("learning_rate", "warmup_steps", "clip_norm", "weight_decay"):
            if not 0 <= getattr(self, field) < float("inf"):
                raise ValueError(f"optimizer.{field} is {getattr(self, field)}, expected a number from 0")
        if not self.eps > 0:
            raise ValueError(f"optimizer.eps is {self.eps}, expected a number above 0")


@dataclasses.dataclass(frozen=True)
class JitterConfig:
    """Augmentation of patches on the device, for records with patches (all zero: none)."""

    rotation_deg: float = 0.0
    """Standard deviation of the rotation, degrees."""
    scale: float = 0.0
    """Standard deviation of log scale."""
    shift_px: float = 0.0
    """Standard deviation of the shift, px of the 32 px patch."""
    brightness: float = 0.0
    """Standard deviation of the offset, in units of the gray range."""
    contrast: float = 0.0
    """Standard deviation of log contrast."""
    noise: float = 0.0
    """Standard deviation of pixel noise, in units of the gray range."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    descriptors: tuple[str, ...] = ()
    """Which descriptors take part; empty for all that the records hold."""
    inputs: Literal["columns", "patches"] = "columns"
    """Read descriptor columns, or patches whose descriptors are computed on the device."""
    weights: tuple[str, ...] = ()
    """NAME=FILE weight files of descriptors computed from patches, where they are neither shipped nor installed."""
    epochs: int = 5
    """Passes over the training split."""
    batch_size: int = 1024
    """Rows a step, over all devices."""
    seed: int = 0
    """Initial weights and permutations."""
    data_seed: int = 0
    """Order of the rows and jitter; trainings of one data seed can share batches (`xdesc sweep`)."""
    rows_a_photo: int = 1
    """Rows of a photo that come together in the order of the rows, so that many negatives are of the same photo, as
    where photos are matched; 1: rows come in any order."""
    resident: bool = False
    """Hold the training split on every device instead of streaming it; beside frozen members, the rows alone that have
    a descriptor that learns."""
    checkpoint_every: int = 500
    """Steps between checkpoints; one more at each end of an epoch."""
    log_every: int = 20
    """Steps between lines of the log."""
    validation_rows: int = 4096
    """Rows of the validation split measured after each epoch; also the retrieval pool."""
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    jitter: JitterConfig = JitterConfig()

    def __post_init__(self) -> None:
        for field in ("epochs", "batch_size", "rows_a_photo", "checkpoint_every", "log_every", "validation_rows"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}, expected at least 1")
        if self.inputs == "columns" and (self.weights or self.jitter != JitterConfig()):
            raise ValueError("weights and jitter have no effect on columns; they need inputs='patches'")
        check_finite(self)

    @property
    def hash(self) -> str:
        return config_hash(dataclasses.asdict(self))


def load_config(path: Path | str, kind: type[C] = TrainConfig) -> C:  # type: ignore[assignment]
    """Runs `get_config()` of a configuration file, which must return a `kind`.

    Args:
        path: a file, or the name of a configuration that ships with the package (see `xdesc configs`).
        kind: the class of what it shall return.

    Raises:
        FileNotFoundError: no such file, and none of that name ships.
        ValueError: it is no Python, raises, defines no `get_config`, or that returns something else or fields of
            other types.
    """
    path = find_config(path)
    module_spec = importlib.util.spec_from_file_location(f"xdesc_config_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
        config = module.get_config() if hasattr(module, "get_config") else None
    except (Exception, SystemExit) as error:  # whatever a file of the user's may raise
        raise ValueError(f"{path}: {_place(error, path)}{type(error).__name__}: {error}") from error
    if not hasattr(module, "get_config"):
        raise ValueError(f"{path}: defines no get_config()")
    if not isinstance(config, kind):
        raise ValueError(f"{path}: get_config() returned {type(config).__name__}, expected {kind.__name__}")
    if wrong := wrong_types(config):
        raise ValueError(f"{path}: {wrong[0]}")
    return config


def _place(error: BaseException, path: Path) -> str:
    """The line of a configuration file at which an error came up."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return "" if line is None else f"line {line}: "


def shipped_configs() -> dict[str, Path]:
    """The ready configurations by name: inside the package where it was installed, beside it in a checkout."""
    installed = Path(__file__).with_name("configs")
    folder = installed if installed.is_dir() else Path(__file__).parents[1] / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.py"))}


def find_config(path: Path | str) -> Path:
    """The file of a configuration: as it was given, or a shipped one by its name.

    Raises:
        FileNotFoundError: neither; names those that ship.
    """
    path = Path(path)
    if path.is_file():
        return path
    shipped = shipped_configs()
    if str(path) in shipped:
        return shipped[str(path)]
    near = did_you_mean(str(path), shipped)
    raise FileNotFoundError(f"{path}: no such configuration file{near} (those that ship are {', '.join(shipped)})")


def configs() -> None:
    """Lists the configurations that ship, for `--config NAME`: the stage they are for, and what they are."""
    for name, path in shipped_configs().items():
        source = path.read_text(encoding="utf-8")
        stage = next(stage for kind, stage in _STAGES.items() if f"-> {kind}:" in source)
        summary = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        console.out.print(f"{name} (xdesc {stage})\n    {summary}", markup=False)
