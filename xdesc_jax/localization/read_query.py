"""A query whose features were read from a file, localised so that it fails alone.

In: a localizer, and one photo's features, what they are and its camera. Out: a `Localization`; where its rows cannot be
compared, a failed one that says why, so that one damaged photo does not take the others' poses.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdesc_jax.colmap.model import Camera
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import ImageFeatures
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.outcome import Localization
from xdesc_jax.matching.feature_set import Held


def localize_read(
    localizer: Localizer,
    name: str,
    photo: ImageFeatures,
    held: Held,
    camera: Camera,
    candidates: Sequence[str] | None = None,
    turn_deg: float = 0.0,
) -> Localization:
    """What becomes of a query, which is not matched with itself where the map holds it.

    Args:
        localizer: where.
        name: of the photo.
        photo, held: its features, and what they are.
        camera, candidates, turn_deg: as for `Localizer.localize`.
    """
    try:
        return localizer.localize(
            photo.keypoints, photo.usable_rows(), camera, descriptor=held, candidates=candidates, exclude=(name,),
            frames=of_features(photo), turn_deg=turn_deg,
        )  # fmt: skip
    except ValueError as error:
        return Localization("failed", str(error))
