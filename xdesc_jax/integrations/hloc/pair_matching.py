"""What the matcher computes: matches of two photos out of hloc's feature files, whose descriptors may differ.

In: a configuration and the arrays of a pair. Out: `matches0` and `matching_scores0`. hloc's files do not say what they
hold, so the configuration does. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.features.frames import of_fields, of_others
from xdesc_jax.integrations.hloc.extraction import checked
from xdesc_jax.localization.query_features import QueryFeatures
from xdesc_jax.matching.feature_set import Held
from xdesc_jax.matching.nearest import match
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.names import named_spec
from xdesc_jax.translation.translator import Translator

DEFAULTS: dict[str, Any] = {
    "descriptor": None,  # what the features hold: a registered name, or one of the model
    "descriptor_ref": None,  # the same of the second photos (hloc's `features_ref`); None for `descriptor`
    "translator": None,  # name or file of a model
    "mode": "native",  # or 'embed', 'directional', 'progressive', as `xdesc match --mode`
    "target": None,  # of mode 'directional'
    "ratio": "auto",  # largest first-to-second distance ratio; 'auto' for the calibrated one, None for none
}


class PairMatching:
    """Matches photos in memory.

    Args:
        first, second: what the first and the second photos' rows are.
        router: how they are compared.
        translator: the model; None where nothing is translated.

    Raises:
        ValueError: rows that do not compare.
    """

    def __init__(self, first: Held, second: Held, router: Router, translator: Translator | None = None):
        self._held, self._translator = (first, second), translator
        self.route = router.route(first, second)

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> PairMatching:
        """By hloc's configuration of a model, with the keys of `DEFAULTS`.

        Raises:
            ValueError: a key that there is none of, no descriptor, or one that nothing knows.
            FileNotFoundError: no such model.
        """
        conf = checked(conf, DEFAULTS)
        if conf["descriptor"] is None:
            raise ValueError("the configuration has no 'descriptor', and hloc's files do not say what they hold")
        model = conf["translator"]
        translator = Translator.load(pretrained.resolve(model)) if model is not None else None
        names = conf["descriptor"], conf["descriptor_ref"] or conf["descriptor"]
        specs = [named_spec(name, translator) for name in names]
        router = Router(conf["mode"], translator, target=conf["target"], ratio=conf["ratio"])
        return cls(Held(specs[0]), Held(specs[1]), router, translator)

    def __call__(self, data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Matches one pair.

        Args:
            data: of each photo, behind its number 0 or 1: `keypoints` [N, 2], `descriptors` [D, N] of any float type
                (packed bits as numbers, too), and where the model takes frames `scales` and `oris` [N], radians or,
                as of hloc's own SIFT, degrees.

        Returns:
            matches0 [N0] int64, row of the second photo or -1, and matching_scores0 [N0] float32.

        Raises:
            ValueError: rows that are not what the configuration says, or frames that are missing.
        """
        rows = [self._rows(data, side) for side in (0, 1)]
        matches, scores = np.full(len(rows[0]), -1, np.int64), np.zeros(len(rows[0]), np.float32)
        if all(map(len, rows)):
            found = match(*rows, binary=self.route.target.binary, ratio=self.route.ratio)
            matches[found.indices[:, 0]], scores[found.indices[:, 0]] = found.indices[:, 1], found.scores
        return {"matches0": matches, "matching_scores0": scores}

    def _rows(self, data: Mapping[str, np.ndarray], side: int) -> np.ndarray:
        held = self._held[side]
        rows = data[f"descriptors{side}"].T
        # hloc makes floats of all arrays, and half ones of those it stores.
        rows = np.rint(rows).astype(np.uint8) if held.spec.binary else rows.astype(np.float32)
        fields = {key: data[f"{key}{side}"] for key in ("scales", "oris", "affine") if f"{key}{side}" in data}
        photo = QueryFeatures(held, data[f"keypoints{side}"], rows, self._translator, of_fields(**of_others(fields)))
        return photo.rows(self.route.target)
