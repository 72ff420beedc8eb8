"""A translation of any number of rows, in numpy: what `Translator` hands out for a source and a target.

In: blocks of rows, stored or canonical, the networks between the two ends, and frames and positions of the keypoints
where they take them. Out: rows of the target, and what the rows seen give reason to warn of. Any number of rows passes
in blocks through buffers that are made once, so memory stays at input, output and some tens of MB; where an encoder
looks at a photo's other rows, what is given at once are the rows of one photo, parts of which pass in threads. Imports
numpy alone.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xdesc_jax.config import ContextConfig
from xdesc_jax.descriptors import DescriptorSpec, canonical, stored, unit_rows
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import views
from xdesc_jax.translation import blas
from xdesc_jax.translation.bundle import Layers
from xdesc_jax.translation.deviation import Deviation, RowStatistics, SigmaDeviation
from xdesc_jax.translation.surroundings import Surroundings, check_positions

# 2048 x 1024 floats are 8 MB: large enough for full matrix-product speed, and the passes for bias and ReLU
# still find the block in the last-level cache.
BLOCK_ROWS = 2048
PART_ROWS = 256  # of a photo, in one of several threads; how many of these there are changes no result


class ZeroRowsWarning(UserWarning):
    """Zero descriptors (dark or flat patches) were given; their translations are zero rows."""


class DeviationWarning(UserWarning):
    """Rows do not look like those the model was trained on, as with another implementation or scale."""


class Way(NamedTuple):
    """What leads from a source to a target.

    Attributes:
        source, target: specs of the rows at both ends.
        networks: one after the other.
        harmonics: in which each of them takes frames; 0 where it takes none.
        context: layers and settings of what the first network is told of a photo's other rows; None for nothing.
        statistics: of the rows that the model was trained on.
        log2_sigma: mean of log2 of the sigmas that it was trained on.
        turning: harmonics by which context tells how neighbours are turned, see `networks.context.turning`.
    """

    source: DescriptorSpec
    target: DescriptorSpec
    networks: Sequence[Layers]
    harmonics: Sequence[int]
    context: tuple[Layers, ContextConfig] | None = None
    statistics: RowStatistics | None = None
    log2_sigma: float | None = None
    turning: int = 0

    @property
    def takes_frames(self) -> bool:
        """Whether the frames of keypoints are needed: networks take them, or context is told as keypoints see it."""
        return any(self.harmonics) or (self.context is not None and self.turning > 0)

    @property
    def takes_views(self) -> bool:
        """Whether other views of a photo give other rows, see `networks.views.renders`."""
        return views.renders(self.source, self.target, any(self.harmonics))


class Form(NamedTuple):
    """Forms of rows: whether bits come packed, whether rows are `kept` as files hold them (see `canonical`), and
    whether the target's are given in their stored form."""

    packed: bool = False
    kept: bool = False
    storage: bool = False


class Stream:
    """Translates blocks of any size from one source to one target, and warns once, where the `with` ends.

    Attributes:
        target: spec of the rows it gives.
        rows: rows seen.
        zero_rows: rows among them that are zero.
        takes_frames: whether blocks come with the frames of their keypoints.
        takes_context: whether each block is a photo, whose rows come with the positions of their keypoints.
        takes_views: whether another view of a photo gives other rows (see `networks.views`).
    """

    def __init__(self, way: Way, form: Form = Form()):  # noqa: B008
        self.source, self.target = way.source, way.target
        self.rows = self.zero_rows = 0
        self._networks = [_Network(*given) for given in zip(way.networks, way.harmonics, strict=True)]
        self.takes_frames, self.takes_context = way.takes_frames, way.context is not None
        self.takes_views, self._context, self._turning = way.takes_views, way.context, way.turning
        self._sizes = SigmaDeviation(way.log2_sigma) if way.log2_sigma is not None and self.takes_frames else None
        self._deviation = None
        if way.statistics is not None:
            own_scale = not (way.source.normalized or way.source.binary)
            self._deviation = Deviation(way.statistics, own_scale, fine=way.source.frame == frame_form.KEYPOINT)
        self._form, self._storage = {"packed": form.packed, "kept": form.kept}, form.storage

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            for category, message in self.findings():
                warnings.warn(message, category, stacklevel=3)

    def findings(self) -> list[tuple[type[Warning], str]]:
        """What the rows seen so far give reason to warn of."""
        found: list[tuple[type[Warning], str]] = []
        if self.zero_rows:
            text = f"{self.zero_rows} of {self.rows} rows of {self.source.name!r} are zero and stay zero"
            found.append((ZeroRowsWarning, text))
        deviation = self._deviation.message() if self._deviation is not None else None
        if deviation is not None:
            text = f"rows do not look like the {self.source.name!r} of the training: {deviation}"
            found.append((DeviationWarning, text))
        sizes = self._sizes.message() if self._sizes is not None else None
        if sizes is not None:
            found.append((DeviationWarning, f"keypoints of {self.source.name!r} are not as in the training: {sizes}"))
        return found

    def __call__(
        self, x: np.ndarray, out: np.ndarray | None = None, where: str = "", first_row: int = 0,
        frames: np.ndarray | None = None, positions: np.ndarray | None = None, view: views.View | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Translates rows.

        Args:
            x: [N, D] rows of the source; N may be 0. May be a memory-mapped file.
            out: [N, W] array to fill, of the dtype that the stream gives.
            where: file or image, for error messages.
            first_row: what error messages call row 0.
            frames: [N, 2] of the keypoints, sigma px and orientation in radians; of no effect where none are taken.
            positions: [N, 2] of the keypoints, px, where the encoder looks at the photo's other rows: these are then
                all rows of a photo. Of no effect where it does not.
            view: the rows that a network would have seen there, in place of those of the photo as it lies.

        Returns:
            [N, W] rows of the target, `out` where given.

        Raises:
            ValueError: rows that do not fit, frames or positions that are missing, or a view where none are taken.
        """
        n = len(x) if np.ndim(x) == 2 else 0
        frames = self._checked(frames, n, where)
        positions = self._checked_positions(positions, n, where)
        if view is not None:
            self.check_views(where)
            assert frames is not None
            frames, positions = views.seen(frames, positions, view)  # once the photo's own sigmas are compared
        if out is None:
            spec = self.target
            width, dtype = (spec.stored_width, spec.stored_dtype) if self._storage else (spec.width, _dtype(spec))
            out = np.empty((n, width), dtype)
        if positions is not None:
            x = canonical(x, self.source, where=where, first_row=first_row, **self._form)
            self._fill_photo(out, x, frames, positions)
            return out
        for start in range(0, max(n, 1), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            rows = x if n == 0 else x[part]
            rows = canonical(rows, self.source, where=where, first_row=first_row + start, **self._form)
            self._fill(out[part], *self._count(rows), None if frames is None else frames[part])
        return out

    def check_views(self, where: str = "") -> None:
        """Raises ValueError where another view of a photo gives no other rows; says `where`."""
        if self.takes_views:
            return
        at, source, target = f"{where}: " if where else "", self.source.name, self.target.name
        raise ValueError(
            f"{at}{source} -> {target}: no views can be rendered: that takes rows of frame 'keypoint', which turn with "
            "their keypoints, and a model that makes rows of frame 'image' of them by the keypoints' scales and "
            "orientations"
        )

    def check_rendered(self, view: str | None, where: str) -> None:
        """Raises ValueError where rows are of another view, and the keypoints' frames of the photo as it lies.

        Args:
            view: the attribute of the file that the rows come from; None where it has none.
            where: file, for the message.
        """
        turns = self.source.frame == frame_form.KEYPOINT and not self.source.is_embedding
        if view in (None, views.AS_IT_LIES.name) or turns or not self.takes_frames:
            return
        raise ValueError(
            f"{where}: holds rows of the view {view}, but frames of the photo as it lies, which the model needs to "
            f"make {self.target.name!r} of them; these turn with their keypoints and are the same in every view, so "
            "translate what the view was rendered of"
        )

    def observe(self, x: np.ndarray, where: str = "", frames: np.ndarray | None = None) -> None:
        """Counts and compares rows without translating them: those that an earlier run has translated."""
        self._checked(frames, len(x), where)
        for start in range(0, len(x), BLOCK_ROWS):
            block = x[start : start + BLOCK_ROWS]
            self._count(canonical(block, self.source, where=where, first_row=start, **self._form))

    def probabilities(
        self, x: np.ndarray, frames: np.ndarray | None = None, positions: np.ndarray | None = None, where: str = ""
    ) -> np.ndarray:
        """Canonical rows -> float32 [N, D], the probability of each bit where the target is binary."""
        x, frames = x.astype(np.float32), self._checked(frames, len(x), where)
        positions = self._checked_positions(positions, len(x), where)
        inputs = None if positions is None else self._surroundings(x, frames, positions).inputs(0, len(x))
        y = self._forward(x, frames, inputs)
        if self.target.binary:
            return _sigmoid(y)
        return _finish(y, self.target)

    def _checked(self, frames: np.ndarray | None, n: int, where: str) -> np.ndarray | None:
        if not self.takes_frames:
            return None
        if frames is None and n == 0:  # without rows, none is missing
            return np.zeros((0, frame_form.COLUMNS), np.float32)
        if frames is not None:
            frames = frame_form.check(frames, n, where)
            if self._sizes is not None:
                self._sizes.update(frames)
            return frames
        at, source, target = f"{where}: " if where else "", self.source.name, self.target.name
        if self.source.frame == frame_form.KEYPOINT and not self.source.is_embedding:
            raise ValueError(
                f"{at}rows of {source!r} come without the scales and orientations of their keypoints, which the model "
                f"needs to make {target!r} of them"
            )
        raise ValueError(
            f"{at}{source} -> {target}: from a descriptor without frames to one with them there is no translation, "
            "only the joint space (target 'embedding'): no scales and orientations came with these rows"
        )

    def _checked_positions(self, positions: np.ndarray | None, n: int, where: str) -> np.ndarray | None:
        if not self.takes_context:
            return None
        if positions is not None:
            return check_positions(positions, n, where)
        at, source = f"{where}: " if where else "", self.source.name
        raise ValueError(
            f"{at}rows of {source!r} come without the positions of their keypoints, which the model needs: its encoder "
            "of them looks at the photo's other rows. Give all rows of one photo together, and positions [N, 2] in px"
        )

    def _surroundings(self, x: np.ndarray, frames: np.ndarray | None, positions: np.ndarray) -> Surroundings:
        assert self._context is not None
        layers, config = self._context
        first, usable = self._networks[0], np.asarray(x.any(axis=1))
        own = frames if first.takes_frames or self._turning else None
        return Surroundings(layers, config, first.with_frames(x, own), own, positions, usable, self._turning)

    def _fill_photo(self, out: np.ndarray, x: np.ndarray, frames: np.ndarray | None, positions: np.ndarray) -> None:
        x, zero = self._count(x)

        def fill(start: int) -> None:
            part = slice(start, min(start + PART_ROWS, len(x)))
            inputs = around.inputs(part.start, part.stop)
            self._fill(out[part], x[part], zero[part], None if frames is None else frames[part], inputs)

        with blas.threads().pool() as pool:
            around = self._surroundings(x, frames, positions)
            for _ in pool.map(fill, range(0, len(x), PART_ROWS)):  # raises what a thread raised
                pass

    def _fill(
        self, out: np.ndarray, x: np.ndarray, zero: np.ndarray, frames: np.ndarray | None,
        inputs: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        y = _finish(self._forward(x, frames, inputs), self.target)
        if zero.any():
            y[zero] = 0
        out[:] = stored(y, self.target) if self._storage else y

    def _count(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows as float32 and which of them are zero, once they are counted."""
        x = rows.astype(np.float32, copy=False)
        zero = np.asarray(~x.any(axis=1))
        zeros = int(zero.sum())
        self.rows += len(x)
        self.zero_rows += zeros
        if self._deviation is not None:
            self._deviation.update(x[~zero] if zeros else x)
        return x, zero

    def _forward(self, x: np.ndarray, frames: np.ndarray | None, inputs: np.ndarray | None) -> np.ndarray:
        """Raw output of the last network; the embedding between two networks has unit length.

        `inputs` are the whole of what the first network takes of the rows, where it takes context.
        """
        for i, network in enumerate(self._networks):
            if i > 0 or inputs is None:
                inputs = network.with_frames(unit_rows(x) if i > 0 else x, frames)
            x = network(inputs)
        return x


class _Network:
    """An MLP with ReLU between its layers and buffers for a block of rows, of each thread its own; of `harmonics` over
    0, it takes frames."""

    def __init__(self, layers: Layers, harmonics: int):
        self._layers, self._harmonics = layers, harmonics
        self._thread = threading.local()

    @property
    def takes_frames(self) -> bool:
        return self._harmonics > 0

    def with_frames(self, x: np.ndarray, frames: np.ndarray | None) -> np.ndarray:
        """Rows with their frames behind them, where the network takes these."""
        if not self.takes_frames:
            return x
        assert frames is not None
        return frame_form.behind(x, frames, self._harmonics)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """float32 [n, in], rows with all that the network takes behind them -> float32 [n, out], a buffer that the next
        call overwrites."""
        buffers: list[np.ndarray] = getattr(self._thread, "buffers", [])
        if not buffers or len(x) > len(buffers[0]):
            buffers = self._thread.buffers = [np.empty((len(x), len(bias)), np.float32) for _, bias in self._layers]
        last = len(self._layers) - 1
        for i, (kernel, bias) in enumerate(self._layers):
            y = buffers[i][: len(x)]
            np.matmul(x, kernel, out=y)
            y += bias
            if i < last:
                np.maximum(y, 0, out=y)
            x = y
        return x


def _dtype(spec: DescriptorSpec) -> np.dtype:
    return np.dtype(np.bool_ if spec.binary else np.float32)


def _finish(y: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    """A network's raw output -> canonical rows; a bit's probability is over 0.5 where its logit is over 0."""
    if spec.binary:
        return y > 0
    if spec.output == "relu":
        y = np.maximum(y, 0)
    elif spec.output == "sigmoid":
        y = _sigmoid(y)
    return unit_rows(y) if spec.normalized else y


def _sigmoid(y: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * y))  # exp(-y) would overflow
