"""In which descriptor two photos are compared, and their rows in it.

In: what the rows of two photos are, a translator, and a mode. Out: a `Route`: the descriptor or joint space
that both go to, and the ratio at which they match there; and rows as `nearest` takes them. Modes:

    native        no translation: both photos hold the same descriptor
    embed         both go to the joint space
    progressive   the lower of an order is translated to the higher (paper, section 5.2)
    directional   all go to one target; without a target, the first photo's go to the second's

Runs on the base install.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import DescriptorSpec, from_stored
from xdesc_jax.features.keypoints import apart
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.networks.views import View
from xdesc_jax.translation.ratios import DEFAULT, key, parted
from xdesc_jax.translation.stream import Stream, ZeroRowsWarning
from xdesc_jax.translation.translator import EMBEDDING, Translator

Mode = Literal["native", "embed", "progressive", "directional"]
MODES: tuple[Mode, ...] = ("native", "embed", "progressive", "directional")
KEPT_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class Route:
    """How two photos are compared.

    Attributes:
        target: descriptor or joint space that both photos' rows are in, or are translated to.
        ratio: largest first-to-second distance ratio on the L2 scale; None for no test.
        why: where the ratio comes from, for people.
    """

    target: DescriptorSpec
    ratio: float | None
    why: str


class Router:
    """Chooses the route of two photos.

    Args:
        mode: see the module.
        translator: the model; None in mode 'native'.
        target: where all rows go, in mode 'directional'.
        order: descriptors from the worst to the best, for mode 'progressive'; None for the model's own order.
        ratio: for all pairs instead of the calibrated ones; None for no ratio test, 'auto' for the calibrated.
        ratios: calibrated ratios besides those of the model, by the keys of `ratios`.

    Raises:
        ValueError: a mode without what it needs, or names that the model does not have.
    """

    def __init__(
        self,
        mode: Mode,
        translator: Translator | None = None,
        *,
        target: str | None = None,
        order: Sequence[str] | None = None,
        ratio: float | Literal["auto"] | None = "auto",
        ratios: Mapping[str, float] | None = None,
    ):
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
        if mode != "native" and translator is None:
            raise ValueError(f"mode {mode!r} translates, so it needs a model: give --model")
        if target is not None and mode != "directional":
            raise ValueError(f"target {target!r} is for mode 'directional', not {mode!r}")
        if order is not None and mode != "progressive":
            raise ValueError(f"--order is for --mode progressive, not {mode}")
        if isinstance(ratio, (int, float)) and not 0 < ratio <= 1:
            raise ValueError(f"ratio is {ratio}, expected a value over 0 and at most 1")
        self.mode, self._translator, self._ratio = mode, translator, ratio
        self._target = translator.spec(target) if translator is not None and target is not None else None
        self._embedding = translator.spec(EMBEDDING) if translator is not None and mode == "embed" else None
        self._known = dict(ratios or {}) | (translator.bundle.ratios if translator is not None else {})
        self.order: tuple[str, ...] = ()
        if translator is not None and mode == "progressive":
            self.order = tuple(order) if order is not None else translator.order()
            for name in self.order:
                translator.spec(name)
            if len(set(self.order)) < len(self.order):
                raise ValueError(f"the order {', '.join(self.order)} names a descriptor twice")

    def route(self, a: Held, b: Held) -> Route:
        """The route of two photos; the first is the source in mode 'directional'.

        Raises:
            ValueError: rows that do not compare, or that the order or the model lacks.
        """
        target = self._common(a, b)
        if self._ratio != "auto":
            return Route(target, self._ratio, "given")
        return Route(target, *self._calibrated(a, b, target))

    def _common(self, a: Held, b: Held) -> DescriptorSpec:
        if self.mode == "native":
            if (a.spec.name, a.spec.width, a.spec.kind) != (b.spec.name, b.spec.width, b.spec.kind):
                remedy = "translate one of them, or match with a model"
                if self._translator is not None:
                    remedy = "say how the model is to compare them: --mode embed or directional"
                raise ValueError(
                    f"rows of {a.spec.name!r} ({a.spec.kind}, {a.spec.width}) and {b.spec.name!r} ({b.spec.kind}, "
                    f"{b.spec.width}) do not compare: only rows of one descriptor or one joint space match; {remedy}"
                )
            return a.spec
        if self._embedding is not None:
            return self._embedding
        if self.mode == "directional":
            return self._target or b.spec
        if a.spec.name == b.spec.name:
            return a.spec
        for held in (a, b):
            if held.spec.name not in self.order:
                raise ValueError(f"the order {', '.join(self.order)} does not say where {held.spec.name!r} stands")
        return max(a.spec, b.spec, key=lambda spec: self.order.index(spec.name))

    def _calibrated(self, a: Held, b: Held, target: DescriptorSpec) -> tuple[float, str]:
        if target.is_embedding:
            name = key("joint", a.source, b.source)
            if any(h.spec.is_embedding and h.translated_from is None for h in (a, b)):
                return DEFAULT, "the default: a file does not say what it was embedded from"
        else:
            sources = [s for s in (self._source(a, target), self._source(b, target)) if s is not None]
            if len(sources) == 2:
                return DEFAULT, "the default: both sides are translated"
            name = key("translated", sources[0], target.name) if sources else target.name
        if name in self._known:
            return self._known[name], f"calibrated for {name}"
        if parted(name)[0] == "native":
            return DEFAULT, "the default of native rows"
        return DEFAULT, f"the default: the model has no calibrated ratio of {name}"

    @staticmethod
    def _source(held: Held, target: DescriptorSpec) -> str | None:
        """What rows are translated from on their way to `target`; None for native rows of it."""
        if held.spec.name == target.name:
            return held.translated_from
        own = held.spec.name
        return own if held.translated_from is None else key("translated", held.translated_from, own)


class Rows:
    """Rows of photos as `nearest` takes them, translated where a route asks for it; the last ones are kept.

    Args:
        features: where they come from.
        translator: the model; None where nothing is translated.
        kept_bytes: how much is kept, so that a photo of many pairs is read and translated once.
        nms_px: of keypoints closer than that, the one of the highest score alone has a row, or the first where the
            file has no scores; 0 for all.

    Attributes:
        skipped: photo -> rows that are not valid, not finite or zero, and never match.
        not_finite: photo -> those among them that are valid, but hold a value that is not finite.
        duplicates: photo -> further rows that never match, because a keypoint that is left is too near.
    """

    def __init__(
        self,
        features: FeatureSet,
        translator: Translator | None = None,
        kept_bytes: int = KEPT_BYTES,
        nms_px: float = 0.0,
    ):
        self.features = features
        self.skipped: dict[str, int] = {}
        self.not_finite: dict[str, int] = {}
        self.duplicates: dict[str, int] = {}
        self._nms_px = nms_px
        self._translator, self._limit, self._bytes = translator, kept_bytes, 0
        self._kept: collections.OrderedDict[tuple[str, str, View | None], np.ndarray] = collections.OrderedDict()
        self._streams: dict[tuple[str, str], Stream] = {}

    def __call__(self, name: str, target: DescriptorSpec, view: View | None = None) -> np.ndarray:
        """Rows of a photo in `target`, as `view` shows it where one is given.

        Returns:
            [N, D] float32 canonical rows, or [N, bytes] uint8 packed bits where `target` is binary. Rows that
            are not valid, not finite or duplicates are zero.

        Raises:
            ValueError: rows that the model does not take, or a view where `takes_views` says that there are none.
        """
        place = (name, target.name, view)
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        rows = self._read(name, target, view)
        self._kept[place] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._limit and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return rows

    @property
    def translates(self) -> bool:
        """Whether there is a model, whose networks may take the keypoints' frames."""
        return self._translator is not None

    def takes_views(self, name: str, target: DescriptorSpec) -> bool:
        """Whether other views of a photo give other rows in `target`."""
        held = self.features.held(name)
        if held is None or self._translator is None:
            return False
        return self._translator.takes_views(held.spec.name, target.name)

    def findings(self) -> list[str]:
        """What the rows translated so far give reason to warn of; zero rows are `skipped`, and no reason."""
        found = (f for stream in self._streams.values() for f in stream.findings())
        return list(dict.fromkeys(text for category, text in found if category is not ZeroRowsWarning))

    def strange(self) -> list[str]:
        """What values that are not finite give reason to warn of, in the rows read so far."""
        found = {name: count for name, count in self.not_finite.items() if count}
        if not found:
            return []
        name = min(found)
        return [
            f"{counted(sum(found.values()), 'row')} of {counted(len(found), 'photo')} can never match, for values "
            f"that are not finite, first {found[name]} of {name!r} in {self.features.path(name)}"
        ]

    def count(self, name: str) -> None:
        """Counts the rows of a photo that never match, where it was not read yet: an earlier run has matched it."""
        if name not in self.skipped:
            self._usable(name)

    def _read(self, name: str, target: DescriptorSpec, view: View | None) -> np.ndarray:
        held = self.features.held(name)
        where = f"{self.features.path(name)}: {name!r}"
        rows = self._usable(name)
        if held is None:
            return np.zeros((self.skipped[name], target.stored_width), np.uint8 if target.binary else np.float32)
        if held.spec.name == target.name:
            if view is not None:
                raise ValueError(f"{where}: holds {target.name!r} already, of which no other view can be rendered")
            return rows if target.binary else from_stored(rows, target, where)
        if self._translator is None:
            raise ValueError(f"{where}: holds {held.spec.name!r}, and there is no model to make {target.name!r} of it")
        route = (held.spec.name, target.name)
        if route not in self._streams:
            self._check(held.spec, where)
            # The stored form of bits is packed, as matching takes them; of real rows it may be rounded.
            self._streams[route] = self._translator.stream(*route, packed=held.spec.binary, storage=target.binary)
        stream = self._streams[route]
        stream.check_rendered(self.features.view(name), where)
        frames = self.features.frames(name) if stream.takes_frames else None
        positions = self.features.positions(name) if stream.takes_context else None
        return stream(rows, where=where, frames=frames, positions=positions, view=view)

    def _usable(self, name: str) -> np.ndarray:
        """Rows of a photo as they are stored, in which those that never match are zero and counted."""
        held = self.features.held(name)
        if held is None:
            self.skipped[name] = len(self.features.keypoints(name))
            return np.zeros((self.skipped[name], 0), np.float32)
        photo = self.features.read(name)
        usable = photo.valid & photo.descriptors.any(axis=1)
        if not held.spec.binary:
            finite = np.isfinite(photo.descriptors).all(axis=1)
            self.not_finite[name] = int((usable & ~finite).sum())
            usable = usable & finite
        self.skipped[name] = int((~usable).sum())
        if self._nms_px:
            rows = np.flatnonzero(usable)
            scores = np.zeros(len(photo)) if photo.scores is None else photo.scores
            left = rows[apart(photo.keypoints[rows], scores[rows], self._nms_px)]
            self.duplicates[name] = len(rows) - len(left)
            usable = np.isin(np.arange(len(photo)), left)
        return np.where(usable[:, None], photo.descriptors, 0)

    def _check(self, found: DescriptorSpec, where: str) -> None:
        assert self._translator is not None
        try:
            expected = self._translator.spec(found.name)
        except ValueError as error:
            raise ValueError(f"{where}: holds {found.name!r}, which the model cannot take: {error}") from error
        if (found.width, found.kind) != (expected.width, expected.kind):
            raise ValueError(
                f"{where}: its {found.name!r} is {found.kind} of width {found.width}, "
                f"but the model has {self._translator.describe()}"
            )
