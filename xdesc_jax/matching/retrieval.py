"""Which photos show the same place: the stage `xdesc retrieve`.

In: feature files, whose photos compare in a joint space (see `vlad`), or files of one vector a photo (see
`global_features`). Out: a pair list (hloc's: query, database). Runs on the base install.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, atomic, config_hash, input_hash, recorded, write_json
from xdesc_jax.matching.feature_set import FeatureSet, take_only
from xdesc_jax.matching.global_features import GlobalFeatures, hold_global
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.pairs import Pairs, pair_line
from xdesc_jax.matching.routes import Rows
from xdesc_jax.matching.sequence import Places
from xdesc_jax.matching.vlad import CLUSTERS, VladIndex, vector_of
from xdesc_jax.translation.translator import EMBEDDING, Translator


def retrieve(
    features: tuple[Path, ...],
    out: Path,
    *,
    database: tuple[Path, ...] = (),
    model: Path | None = None,
    top: int = 20,
    apart: int = 0,
    clusters: int = CLUSTERS,
    only: Path | None = None,
    descriptor: tuple[str, ...] = (),
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Feature files -> pair list of photos that show the same place. Started again, it goes on where it stopped.

    Args:
        features: feature files (.h5) and COLMAP databases of the queries, whose descriptors may differ; or files of one
            vector a photo, as hloc's of NetVLAD, which need no model. Behind them, `out`.
        out: pair list to write: query and database photo a line (a tab between names with blanks).
        database: files of the photos to retrieve; without them the photos retrieve each other, each pair once.
        model: model file (.safetensors), or the name of one that ships with the package; not needed where all
            files hold embeddings.
        top: photos retrieved for each query.
        apart: retrieve none within so many places of a query, in the order of the names of its folder: of a video, the
            places that it comes back to alone.
        clusters: size of the vocabulary.
        only: text file of the photos to take, queries and those that are retrieved, one name a line; all without.
        descriptor: what files hold that do not say (hloc's); NAME=FILE for one of several. May be given again.
        seed: of the vocabulary.
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside it as `<out>.json`.

    Raises:
        ValueError: a model without joint space, files that do not fit it, or `out` is an input.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        InUse: another process makes it.
    """
    out, summary = Path(out), Path(out).with_name(Path(out).name + ".json")
    files = [Path(path) for path in (*features, *database)]
    if out.resolve() in [path.resolve() for path in files]:
        raise ValueError(f"{out}: is the input itself")
    if top < 1:
        raise ValueError(f"top is {top}, expected at least 1")
    if apart < 0:
        raise ValueError(f"apart is {apart}, expected 0 or more")
    if hold_global(files):
        return _retrieve_global(features, database, out, top, apart, only, overwrite)
    held = NamedFiles.of(descriptor, files)
    named, model = model, pretrained.resolve(model) if model is not None else None
    translator = Translator.load(model) if model is not None else None
    with (
        FeatureSet(features, held, strict=not database, model=translator) as queries,
        FeatureSet(database, held, strict=False, model=translator)
        if database
        else contextlib.nullcontext(queries) as known,
    ):
        taken = take_only(only, queries, known)
        space = joint_space([queries, known], translator)
        with console.status("reading the inputs"):
            hashes = {"features": queries.hashes(), "database": known.hashes() if database else []}
        config = {
            "stage": "retrieve",
            **hashes,
            "space": space.name,
            "descriptor": held.config(files),
            "top": top,
            "clusters": clusters,
            "seed": seed,
        } | ({"apart": apart} if apart else {})
        config |= taken
        expected = config_hash(config)
        found = recorded(summary)
        given: dict[str, Any] = {
            "features": features,
            "database": database,
            "model": named,
            "top": top,
            "apart": apart,
            "clusters": clusters,
        }
        given |= {"only": only, "descriptor": descriptor, "seed": seed}
        differs = partial(changes, summary, found, config, given, names_kept=["settings"])
        if already_done(out, found, expected, overwrite, differs=differs):
            console.up_to_date(out)
            return out
        shown = {"queries": len(queries), "database photos": len(known)}
        console.settings(f"xdesc retrieve -> {out}", {**given, **shown}, retrieve)
        rows = Rows(known, translator, kept_bytes=0)  # the index keeps what it needs again
        track = lambda names: console.track(names, "indexing", "photos")  # noqa: E731
        with claimed(beside(out), "xdesc retrieve", out), Journal(beside(out, ".part"), expected) as journal:
            if len(journal):
                console.info(f"going on: {console.counted(len(journal), 'photo is', 'photos are')} indexed already")

            def recall(key: str, make: Callable[[], np.ndarray]) -> np.ndarray:
                return journal.recall(key, lambda: {"array": make()})["array"]

            index = VladIndex.build(
                lambda n: rows(n, space), known.names, clusters=clusters, seed=seed, track=track, recall=recall,
                where=", ".join(map(str, known.paths)),
            )  # fmt: skip
            vectors = index.vectors
            if database:
                query_rows, made = Rows(queries, translator, kept_bytes=0), []
                for name in console.track(queries.names, "retrieving", "photos"):
                    of_query = partial(vector_of, lambda n: query_rows(n, space), name, index.centers)
                    made.append(recall(f"query {name}", of_query))
                vectors = np.stack(made)
            pairs = retrieved_pairs(queries.names, vectors, index, top, ordered=bool(database), apart=apart)
            _write(out, pairs)
            without = [name for name, vector in zip(queries.names, vectors, strict=True) if not vector.any()]
            if without:
                told = console.counted(
                    len(without), "photo has no descriptors and retrieves", "photos have no descriptors and retrieve"
                )
                console.warn(f"{told} nothing, first {without[:5]}")
            counts = {**shown, "pairs": len(pairs), "queries_without_descriptors": len(without)}
            write_json(summary, {"config": config, "config_hash": expected, "settings": given, **counts})
            journal.remove()
    console.figures("retrieved in the joint space", counts)
    console.result(out, figures=summary)
    return out


def joint_space(sets: Sequence[FeatureSet], translator: Translator | None) -> DescriptorSpec:
    """The joint space in which photos of these files retrieve each other.

    Raises:
        ValueError: the model has none; or there is no model, and the files do not hold embeddings of one space.
    """
    if translator is not None:
        return translator.spec(EMBEDDING)
    held = [features.held(name) for features in sets for name in features.names]
    specs = {h.spec.name: h.spec for h in held if h is not None}
    if len(specs) != 1 or not next(iter(specs.values())).is_embedding:
        raise ValueError(
            f"retrieval compares embeddings of one joint space, files hold {sorted(specs)}: give a --model"
        )
    return next(iter(specs.values()))


def _write(out: Path, pairs: Pairs) -> None:
    with atomic(out) as temporary:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(pair_line(a, b) for a, b in pairs)


def _retrieve_global(
    features: tuple[Path, ...],
    database: tuple[Path, ...],
    out: Path,
    top: int,
    apart: int,
    only: Path | None,
    overwrite: bool,
) -> Path:
    """`retrieve` of files of one vector a photo."""
    summary = out.with_name(out.name + ".json")
    queries = GlobalFeatures(features)
    known = GlobalFeatures(database) if database else queries
    taken = take_only(only, queries, known)
    if queries.vectors.shape[1] != known.vectors.shape[1]:
        widths = [f"{found.paths[0]} of {found.vectors.shape[1]} values" for found in (queries, known)]
        raise ValueError(f"vectors of {' and '.join(widths)} do not compare")
    hashes = {"features": [input_hash(path) for path in features], "database": [input_hash(path) for path in database]}
    config = {"stage": "retrieve", **hashes, "space": "global", "top": top, "apart": apart} | taken
    expected = config_hash(config)
    given = {"features": features, "database": database, "top": top, "apart": apart, "only": only}
    found = recorded(summary)
    differs = partial(changes, summary, found, config, given, names_kept=["settings"])
    if already_done(out, found, expected, overwrite, differs=differs):
        console.up_to_date(out)
        return out
    counts = {"queries": len(queries.names), "database photos": len(known.names)}
    console.settings(f"xdesc retrieve -> {out}", {**given, **counts}, retrieve)
    index = VladIndex(np.zeros((0, 0), np.float32), known.names, known.vectors)
    pairs = retrieved_pairs(queries.names, queries.vectors, index, top, ordered=bool(database), apart=apart)
    with claimed(beside(out), "xdesc retrieve", out):
        _write(out, pairs)
        figures = {**counts, "pairs": len(pairs)}
        write_json(summary, {"config": config, "config_hash": expected, "settings": given, **figures})
    console.figures("retrieved by global features", figures)
    console.result(out, figures=summary)
    return out


def retrieved_pairs(
    names: Sequence[str], vectors: np.ndarray, index: VladIndex, top: int, ordered: bool, apart: int = 0
) -> Pairs:
    """Query and retrieved photo, none with itself; where not `ordered`, each pair in one order alone.

    Args:
        names: of the queries.
        vectors: [Q, K] of them.
        index: the photos that are retrieved.
        top: how many of each.
        ordered: whether queries and retrieved photos are two sets.
        apart: none within so many places of the query, in its sequence.
    """
    found, _ = index.nearest(vectors, top + 1 + 2 * apart)  # some of them may be the query itself and its neighbours
    place = {name: i for i, name in enumerate(index.names)}
    itself = np.array([place.get(name, -1) for name in names], np.int64)
    taken = (found >= 0) & (found != itself[:, None])
    if apart:
        every = sorted({*index.names, *names})
        row = {name: i for i, name in enumerate(every)}
        at, of_photo = Places.of(every), np.array([row[name] for name in index.names])
        taken &= at.apart(of_photo[found], np.array([row[name] for name in names])[:, None], apart)
    taken &= np.cumsum(taken, axis=1) <= top
    query, _ = np.nonzero(taken)
    pairs = Pairs(names, index.names, query.astype(np.int32), found[taken].astype(np.int32))
    if ordered:
        return pairs
    a, b = itself[pairs.first], found[taken]
    _, first = np.unique(np.minimum(a, b) * len(index.names) + np.maximum(a, b), return_index=True)
    return pairs.take(np.sort(first))
