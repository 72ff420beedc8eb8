"""A query and a photo of the map, one of them rendered as other views show it, in the view that agrees best.

In: a query, a photo and the route on which they are compared. Out: which of the two is rendered, and their matches in
the best view. The map's side goes first: it is rendered once for all queries. Runs on the base install.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.localization.map import MapPhoto
from xdesc_jax.localization.query_features import QueryFeatures
from xdesc_jax.matching.nearest import match
from xdesc_jax.matching.routes import Route
from xdesc_jax.networks.views import AS_IT_LIES, View

CLEARLY = 1.5  # standard deviations


class Sides(NamedTuple):
    """Rows of a query and of a photo of the map as `nearest` takes them, in one view."""

    view: View
    query: np.ndarray
    photo: np.ndarray


def sides(
    query: QueryFeatures, photo: MapPhoto, target: DescriptorSpec, views: Sequence[View], seen: Sequence[np.ndarray]
) -> list[Sides]:
    """What is compared in `target`: the photo in each of the views that it has, else the query, else both as they lie.

    Args:
        query: as its features have it.
        photo: of the map.
        target: the descriptor, or joint space.
        views: that are asked for.
        seen: rows of the photo in each of them; none where it is not rendered.

    Raises:
        ValueError: rows of the query that do not become `target`.
    """
    if seen:
        rows = query.rows(target)
        return [Sides(view, rows, of_photo) for view, of_photo in zip(views, seen, strict=True)]
    if views and query.takes_views(target):
        return [Sides(view, query.rows(target, view), photo.rows) for view in views]
    return [Sides(AS_IT_LIES, query.rows(target), photo.rows)]


def best(compared: Sequence[Sides], route: Route) -> tuple[View, np.ndarray]:
    """The view that agrees best, and its matches: [M, 2] int, rows of query and photo.

    Translated rows are matched at ratios near 1, where a wrong view has nearly as many matches by chance, and sure ones
    tell views apart. So a view's score is the sum of what its matches' ratios leave to the ratio that was asked for (to
    1, where there is no test). The largest is taken, of equal ones the first, but only where it exceeds that of the
    photo as it lies, or upright (of the first view, where that is not among them), by `CLEARLY` times the deviation of
    their difference.
    """
    found = [match(at.query, at.photo, binary=route.target.binary, ratio=route.ratio) for at in compared]
    limit = np.float64(1 if route.ratio is None else route.ratio)
    sums = [(limit - each.ratios).sum() for each in found]
    squares = [((limit - each.ratios) ** 2).sum() for each in found]
    views = [at.view for at in compared]
    plain, chosen = next((i for i, view in enumerate(views) if view.of(0) == AS_IT_LIES), 0), sums.index(max(sums))
    if sums[chosen] - sums[plain] <= CLEARLY * np.sqrt(squares[chosen] + squares[plain]):
        chosen = plain
    return views[chosen], found[chosen].indices


def check(views: Sequence[View], takes_views: Iterable[bool], compared: Sequence[str]) -> None:
    """Raises ValueError where views are asked for, and nothing that is compared can be rendered.

    Args:
        views: asked for.
        takes_views: whether either side can be rendered, of each kind of query with each kind of photo.
        compared: what these are, for people.
    """
    if views and not any(takes_views):
        raise ValueError(
            "--views: nothing can be rendered: it takes rows of frame 'keypoint', which turn with their keypoints, and "
            "a --model that makes rows of frame 'image' of them by scales and orientations, in --mode embed or "
            f"directional; compared here: {'; '.join(compared) or 'nothing'}"
        )


def check_upright(views: Sequence[View], of_map: bool, compared: str) -> None:
    """Raises ValueError where views of photos upright are asked for, and not the map's photos are rendered."""
    if not of_map and any(view.upright for view in views):
        raise ValueError(
            "--views gravity: is for maps whose rows turn with their keypoints, as their photos' poses tell how they "
            f"were held, and a query's is what is sought; compared here: {compared}"
        )


def check_matcher(views: Sequence[View], by_network: bool) -> None:
    """Raises ValueError where views are asked for, and a network matches, which gives no ratios."""
    if views and by_network:
        raise ValueError(
            "--views: is for --matcher nearest, whose ratios tell which view agrees best; translate the map in one "
            "view (`xdesc translate --views`), and match that"
        )
