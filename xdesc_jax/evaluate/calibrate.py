"""The stage `xdesc calibrate`: a model file and scenes with known homographies -> ratios in the model file.

In: a model, and scenes as `xdesc evaluate homography` takes them. Out: the model with a ratio threshold for
each pair of descriptors, a table, and `<out>.ratios.json`.

Native descriptors keep the usual 0.9. A pair gets the largest ratio at which its mutual matches are as often
right as those of the native target (the database's descriptor) at 0.9: what follows the matcher then sees the
share of outliers that it is used to. Where that would leave less than half of the correct matches of its best
F1 score, that precision is out of reach, and the pair gets the smallest ratio that leaves half of them. (To
fall back on the best F1 itself would let a pair at the border jump between 0.87 and 1 from scene to scene.)
Matches are pooled over all photo pairs, since a share of few matches says little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.homography import Comparison, comparisons
from xdesc_jax.evaluate.judged import Judged, judge_all
from xdesc_jax.evaluate.scenes import find_scenes
from xdesc_jax.evaluate.stages.homography import extracted_stores, given_stores, scene_config, to_extract
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash, making, write_json
from xdesc_jax.translation import ratios
from xdesc_jax.translation.bundle import save_ratios
from xdesc_jax.translation.translator import Translator

GRID = np.arange(1, 1001) / 1000
KEPT_SHARE = 0.5  # of the correct matches at the best F1 score


@dataclasses.dataclass(frozen=True)
class Accepted:
    """The mutual matches whose ratio is at most `ratio`.

    Attributes:
        ratio: the threshold.
        matches: their number.
        correct: number of these within 3 px of the truth.
        precision: `correct` over `matches`, 0 where there are none.
        recall: `correct` over the query keypoints that have a database keypoint within 3 px of the truth.
    """

    ratio: float
    matches: int
    correct: int
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0 where both are."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclasses.dataclass(frozen=True)
class Ranked:
    """The mutual matches of one comparison in all photo pairs, by ratio.

    Attributes:
        ratios: [K] float32, ascending.
        hits: [K + 1] int, how many of the first k are correct.
        findable: query keypoints that have a true counterpart.
    """

    ratios: np.ndarray
    hits: np.ndarray
    findable: int

    @classmethod
    def of(cls, ratios: np.ndarray, correct: np.ndarray, findable: int) -> Ranked:
        """From ratios [K] and whether each match is correct [K], in any order."""
        order = np.argsort(ratios, kind="stable")
        hits = np.concatenate([[0], np.cumsum(correct[order])])
        return cls(np.asarray(ratios, np.float32)[order], hits, findable)

    def at(self, ratio: float) -> Accepted:
        """The matches that pass a ratio, compared in float32 as matching does."""
        matches = int(np.searchsorted(self.ratios, np.float32(ratio), side="right"))
        correct = int(self.hits[matches])
        return Accepted(
            ratio, matches, correct, correct / matches if matches else 0.0, correct / self.findable if correct else 0.0
        )


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """The ratio of one comparison.

    Attributes:
        comparison: what is matched.
        chosen: figures at its ratio; None where no mutual match is correct.
        rule: 'native' (keeps its ratio), 'precision' (the native target's), 'recall' (half of that at the
            best F1) or 'none'.
        before: figures at the native ratio.
        native: figures of the native target there.
    """

    comparison: Comparison
    chosen: Accepted | None
    rule: str
    before: Accepted
    native: Accepted

    @property
    def key(self) -> str:
        """What the ratio is stored under."""
        assert self.comparison.mode != "naive"
        return ratios.key(self.comparison.mode, self.comparison.source, self.comparison.target)


def calibrate(
    model: Path,
    scenes: Path,
    *,
    out: Path | None = None,
    ratio: float = ratios.DEFAULT,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    keypoints: str = "opencv",
    max_keypoints: int = 2000,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    overwrite: bool = False,
) -> dict[str, float]:
    """Model file -> the same with ratio thresholds for matching its rows. Started again, it goes on where it stopped.

    Args:
        model: model file (.safetensors), or the name of one that ships with the package (see `xdesc models`).
        scenes: folder of scenes, as for `xdesc evaluate homography`; not those that the model is judged on.
        out: model file to write; MODEL itself where left out, unless it is one that ships.
        ratio: the ratio of native rows, whose precision the others are to reach.
        features: feature files, or folders of them, of the photos by their names below SCENES; extracted,
            and not kept, where none are given.
        descriptors: which ones; by default all of the model that photos give, or those among them that FEATURES hold.
            Ratios of others stay as they are.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors, where features are extracted.
        processes: processes that extract.
        overwrite: replace `out` where it is another file.

    Returns:
        The ratios in the model file; the figures lie beside it as `<out>.ratios.json`.

    Raises:
        ValueError: a ratio out of range, a shipped model without `out`, a descriptor that the model lacks, scenes
            in which native rows have no correct match, or what `xdesc evaluate homography` refuses.
        FileNotFoundError: a file that is missing.
        FileExistsError: `out` is another file and `overwrite` is off.
        InUse: another process calibrates it.
    """
    ratios.check({"native rows": ratio})
    named, model = Path(model), pretrained.resolve(model)
    if out is None and model != named:
        kept = "ships with the package" if pretrained.find(str(named)) else "lies in the hub's cache"
        raise ValueError(f"{named}: {kept} and stays as it is; name another file with --out")
    translator, found = Translator.load(model), find_scenes(scenes)
    out = Path(out or model)
    if out.exists() and not out.samefile(model) and not overwrite:
        raise FileExistsError(f"{out} exists; choose another output or pass --overwrite")
    for name in descriptors:
        translator.spec(name)
    making(out)
    work = beside(out, ".work")  # features and matches, until the ratios are there
    with claimed(beside(out), "xdesc calibrate", out), _kept_for_a_rerun(work):
        if features:
            stores = given_stores(features, descriptors, translator)
            stores = {name: path for name, path in stores.items() if name in translator.names}
        else:
            stores = _extracted(
                scenes, work / "features", to_extract(descriptors, translator, keypoints), keypoints=keypoints,
                max_keypoints=max_keypoints, weights=weights, processes=processes,
            )  # fmt: skip
        with console.status("reading the features"):
            hashes = {name: input_hash(path) for name, path in stores.items()}
        settings = {
            "model": f"{model} (joint space {translator.space_id})",
            "scenes": f"{scenes} ({', '.join(scene.name for scene in found)})",
            "pairs": sum(len(scene.pairs) for scene in found),
            "features": {name: f"{path} (sha256 {hashes[name]})" for name, path in stores.items()},
            "ratio": ratio,
        }
        told = {"model": named, "scenes": scenes, "scenes found": len(found), "pairs": settings["pairs"]}
        told |= {"descriptors": list(stores), "features": features, "keypoints": keypoints, "ratio": ratio}
        console.settings(f"xdesc calibrate -> {out}", told | {"max_keypoints": max_keypoints}, calibrate)
        possible = ratios.possible(translator.bundle.networks)
        plan = [
            c
            for c in comparisons({name: translator.specs[name] for name in stores}, translator)
            if c.mode != "naive" and ratios.key(c.mode, c.source, c.target) in possible
        ]
        if not any(c.mode != "native" for c in plan):
            raise ValueError(f"{model}: translates none of {', '.join(stores) or 'the features'} into each other")
        expected = config_hash([scene_config(found), hashes, content_hash(model), [c.label for c in plan]])
        with Journal(work / "matches", expected) as journal:
            results = choose(judge_all(found, stores, translator, plan, journal), ratio)
        chosen = {r.key: r.chosen.ratio for r in results if r.chosen is not None}
        merged = translator.bundle.ratios | chosen
        save_ratios(model, out, merged)
        figures = write_json(
            out.with_name(out.name + ".ratios.json"), {"settings": settings, "ratios": to_dict(results)}
        )  # fmt: skip
    _report(results, ratio)
    console.result(out, figures=figures)
    return merged


@contextlib.contextmanager
def _kept_for_a_rerun(work: Path) -> Iterator[None]:
    """The body works in a folder that stays only where it is stopped from without."""
    try:
        yield
    except ValueError:  # the same again would end the same
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work, ignore_errors=True)


def _extracted(scenes: Path, out: Path, descriptors: Sequence[str], **settings: Any) -> dict[str, Path]:
    """As `extracted_stores`, where `out` may hold what a stopped run extracted, also with other settings."""
    try:
        return extracted_stores(scenes, out, descriptors, **settings)
    except FileExistsError:
        console.info(f"{out}: was extracted with other settings or from other photos, and is not used")
        shutil.rmtree(out)
        return extracted_stores(scenes, out, descriptors, **settings)


def choose(judged: Iterable[Judged], ratio: float) -> list[Calibrated]:
    """The ratio of each comparison.

    Args:
        judged: matches of photo pairs; native ones of each target are among them.
        ratio: the ratio of native rows.

    Raises:
        ValueError: no match of a native target is correct at `ratio`.
    """
    ranked = _ranked(judged)
    results = []
    for comparison, found in ranked.items():
        native = ranked[Comparison("native", comparison.target, comparison.target)].at(ratio)
        if not native.correct:
            raise ValueError(
                f"native rows of {comparison.target!r} have {native.matches} matches at ratio {ratio} in these "
                "scenes, none of them correct: nothing to calibrate to"
            )
        before = found.at(ratio)
        chosen, rule = (before, "native") if comparison.mode == "native" else best(found, native.precision)
        results.append(Calibrated(comparison, chosen, rule, before, native))
    return results


def best(ranked: Ranked, precision: float) -> tuple[Accepted | None, str]:
    """The ratio of one comparison by the rule of this module.

    Args:
        ranked: its mutual matches.
        precision: what is to be reached.

    Returns:
        Figures at its ratio, a multiple of 0.001 (None where no match is correct), and the rule that gave it.
    """
    accepted = [ranked.at(float(ratio)) for ratio in GRID]
    if not accepted[-1].correct:
        return None, "none"
    floor = KEPT_SHARE * max(accepted, key=lambda a: a.f1).correct
    enough = [a for a in accepted if a.correct >= floor]
    precise = [a for a in enough if a.precision >= precision]
    return (precise[-1], "precision") if precise else (enough[0], "recall")


def _ranked(judged: Iterable[Judged]) -> dict[Comparison, Ranked]:
    parts: dict[Comparison, list[Judged]] = {}
    for pair in judged:
        parts.setdefault(pair.comparison, []).append(pair)
    return {
        comparison: Ranked.of(
            np.concatenate([pair.ratios for pair in found]),
            np.concatenate([pair.correct for pair in found]),
            sum(pair.findable for pair in found),
        )
        for comparison, found in parts.items()
    }


def to_dict(results: Sequence[Calibrated]) -> dict[str, Any]:
    """JSON-like: key -> its figures; counts are sums over all photo pairs."""
    return {
        r.key: {
            "ratio": r.chosen.ratio if r.chosen else None,
            "rule": r.rule,
            "calibrated": dataclasses.asdict(r.chosen) if r.chosen else None,
            "at_native_ratio": dataclasses.asdict(r.before),
            "native_target": dataclasses.asdict(r.native),
        }
        for r in results
    }


def _report(results: Sequence[Calibrated], ratio: float) -> None:
    for r in results:
        if r.chosen is None:
            console.warn(f"{r.key}: no mutual match is correct in these scenes, it gets no ratio")
    rows = []
    for r in results:
        chosen = ("", "none", "", "") if r.chosen is None else (
            r.chosen.ratio, r.rule, r.chosen.precision, r.chosen.recall
        )  # fmt: skip
        rows.append((r.key, r.native.precision, r.native.recall, r.before.precision, r.before.recall, *chosen))
    heads = [
        f"{part}\n{figure}" for part in (f"native\nat {ratio}", f"pair\nat {ratio}") for figure in ("prec.", "rec.")
    ]
    console.table(
        "Ratios (precision and recall of mutual matches, pooled over all photo pairs)",
        ["query, database", *heads, "ratio", "by", "prec.", "rec."],
        rows,
    )
