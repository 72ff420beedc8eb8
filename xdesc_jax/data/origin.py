"""Where records come from, as the arguments of `xdesc records` name it: photos, or aligned feature files.

In: those arguments. Out: a source of rows (`rows.ReadableSource`), opened and checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdesc_jax.console.words import counted
from xdesc_jax.data.paired import PairedStores
from xdesc_jax.data.rows import ReadableSource

DESCRIPTORS = ("brief", "sift")  # of photos, where none are named


@dataclasses.dataclass(frozen=True)
class Origin:
    """Photos and what is extracted from them, or feature files; the fields are arguments of `records.records`.

    Raises:
        ValueError: both, or neither.
    """

    photos: Path | None
    paired: tuple[Path, ...]
    descriptors: tuple[str, ...]
    keypoints: str
    first_octave: int
    max_keypoints: int | None
    weights: tuple[str, ...]
    patches: bool
    device: str = "auto"
    network_side: int | None = None
    within: float | None = None
    across: Path | None = None

    def __post_init__(self) -> None:
        if (self.photos is None) == (not self.paired):
            raise ValueError("records come from --photos or from --paired feature files: name one of the two")
        if self.within is not None and not self.paired:
            raise ValueError("--within is for --paired feature files of different keypoints")
        if self.across is not None and not self.paired:
            raise ValueError(
                "--across is for --paired feature files; of photos, `xdesc pairs` makes records across views"
            )

    def __str__(self) -> str:
        return str(self.photos or " ".join(map(str, self.paired)))

    def shown(self, photos: int) -> dict[str, Any]:
        """What is told of it before any work: paths, the number of photos, and settings."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"found": counted(photos, "photo")}

    @contextlib.contextmanager
    def open(
        self, parts: Path, sample: int | None, seed: int, processes: int = 1, strict: bool = False
    ) -> Iterator[ReadableSource]:
        """The rows.

        Args:
            parts: folder for the features of finished photos.
            sample: the most rows that are kept of a photo; what is not kept need not be described.
            seed: of that choice.
            processes: that extract.
            strict: raise at a photo that cannot be read.

        Raises:
            ValueError, FileNotFoundError: as `photos.ExtractedPhotos` and `paired.PairedStores`.
        """
        if self.photos is None:
            with PairedStores(self.paired, self.descriptors, self.within, self.across) as stores:
                yield stores
            return
        from xdesc_jax.data.photos import ExtractedPhotos
        from xdesc_jax.features.extract import ExtractSettings
        from xdesc_jax.features.weights import parse_weights

        extraction = ExtractSettings(
            self.descriptors or DESCRIPTORS,
            self.keypoints,
            self.first_octave,
            self.max_keypoints,
            parse_weights(self.weights),
            sample=sample,
            sample_seed=seed,
            device=self.device,
            network_side=self.network_side,
        )
        yield ExtractedPhotos(self.photos, extraction, parts, processes=processes, patches=self.patches, strict=strict)
