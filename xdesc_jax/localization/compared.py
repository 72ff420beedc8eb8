"""How queries compare with the photos of a map: settled, and refused where they do not, before any query is read.

In: the features of both, the router, the model. Out: what kinds of rows both hold, the routes in words, and a network
that matches, where one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xdesc_jax import console
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.localization import rendered
from xdesc_jax.localization.map import SHOWN
from xdesc_jax.localization.query_features import QueryFeatures
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.learned import LearnedMatcher, check_sizes, without_ratio
from xdesc_jax.matching.routes import Router
from xdesc_jax.networks.frames import KEYPOINT
from xdesc_jax.networks.views import View
from xdesc_jax.translation.translator import Translator


def check_rows(asked: FeatureSet, names: Iterable[str]) -> None:
    """Raises ValueError where the rows of a kind cannot be what they are said to be, in photo after photo.

    One damaged photo takes no other's pose; a file of another descriptor would take all.
    """
    wrong: dict[Held, list[ValueError]] = {}
    fine: set[Held] = set()
    for name in names:
        held = asked.held(name)
        if held is None or held in fine or len(wrong.get(held, ())) == SHOWN:
            continue
        try:
            photo = asked.read(name)
        except ValueError as error:
            wrong.setdefault(held, []).append(error)
            continue
        try:
            QueryFeatures(held, photo.keypoints, photo.usable_rows(), None)
        except ValueError as error:
            wrong.setdefault(held, []).append(ValueError(f"{asked.path(name)}: {name!r}: {error}"))
        else:
            fine.add(held)
    for held, errors in wrong.items():
        if held not in fine:
            raise errors[0]


def network_of(
    router: Router, asked: FeatureSet, queries: Iterable[str], known: FeatureSet, photos: Iterable[str],
    weights: Sequence[str], device: str, min_score: float,
) -> LearnedMatcher:  # fmt: skip
    """LightGlue for the descriptors in which queries and photos of the map meet; see `LearnedMatcher`."""
    photos = [name for name in photos if name in known]
    check_sizes(known, photos)
    routes = [router.route(a, b) for a in kinds(asked, queries) for b in kinds(known, photos)]
    return LearnedMatcher([route.target for route in routes], parse_weights(weights), device, min_score)


def kinds(features: FeatureSet, names: Iterable[str]) -> dict[Held, str]:
    """What photos hold, each kind once, and the first that holds it."""
    found: dict[Held, str] = {}
    for name in names:
        if name in features and (held := features.held(name)) is not None:
            found.setdefault(held, name)
    return found


def routes_told(
    router: Router, translator: Translator | None, asked: Mapping[Held, bool], known: Iterable[Held],
    space: DescriptorSpec | None, views: Sequence[View], network: LearnedMatcher | None,
) -> list[str]:  # fmt: skip
    """How each kind of query compares with each kind of map photo, for people.

    Args:
        router, translator, views, network: of the run.
        asked: what queries hold, and whether their keypoints have frames.
        known: what photos of the map hold.
        space: the joint space of the retrieval; None without.

    Raises:
        ValueError: some do not compare, or none can be rendered though views are asked for.
    """
    texts, takes_views = [], []
    for held, framed in asked.items():
        query = QueryFeatures(held, np.zeros((0, 2)), np.zeros(0), translator)
        if space is not None:
            query.rows(space)
        for other in known:
            route = router.route(held, other)
            route = route if network is None else without_ratio(route)
            query.rows(route.target)
            if not framed and translator is not None:
                _check_frames(translator, held, route.target)
            text = f"{held.source} with {other.source}, as {route.target.name}, ratio {route.ratio} ({route.why})"
            if views and translator is not None:
                of_map, of_query = (
                    translator.takes_views(other.spec.name, route.target.name),
                    query.takes_views(route.target),
                )
                takes_views.append(of_map or of_query)
                rendered.check_upright(views, of_map or not of_query, text)
                if of_map or of_query:
                    text += f", {console.counted(len(views), 'view')} of the {'map' if of_map else 'query'}"
            texts.append(text)
    rendered.check(views, takes_views, texts)
    return texts


def _check_frames(translator: Translator, held: Held, target: DescriptorSpec) -> None:
    """Raises ValueError where rows of queries whose keypoints have no frames cannot become those of the map."""
    source = held.spec
    if source.name == target.name or source.frame == KEYPOINT or not translator.takes_frames(source.name, target.name):
        return
    raise ValueError(
        f"queries of {source.name!r} cannot become {target.name!r}, whose rows turn with keypoints, as theirs have no "
        f"angle: compare both in the joint space (--mode embed), or translate the map (--target {source.name})"
    )
