"""The stage `xdesc evaluate sfm`: a reconstruction against a reference, as in the paper's table 2.

In: a COLMAP model, a reference model, and which photos were to be registered. Out: how many were, and how
near to the reference after robust alignment; points, track length, reprojection error; with the features
that the model was made from, which descriptors its points are made of. Table, JSON and an HTML page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.evaluate.covisibility import Covisibility, covisibility
from xdesc_jax.evaluate.poses import Scale
from xdesc_jax.evaluate.sfm import SfmResult, measure, table_rows
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import making, write_json

RESULTS, REPORT = "results.json", "report.html"


def sfm(
    model: Path,
    *,
    reference: Path,
    out: Path,
    scale: Scale = "metric",
    features: tuple[Path, ...] = (),
    seed: int = 0,
) -> SfmResult:
    """Measures a reconstruction against a reference.

    Args:
        model: folder of a COLMAP model.
        reference: folder of a COLMAP model with the true poses, or a model of another program (transforms.json,
            OpenSfM, OpenMVG, Bundler, NVM); its photos are those to be registered.
        out: folder for the table (JSON) and the report.
        scale: 'metric' where the reference is in metres; 'relative' divides positions by u, the median
            distance from a reference camera to its nearest.
        features: feature files and databases of the photos, for the co-visibility of their descriptors.
        seed: of the alignment.

    Returns:
        The figures, which are also in OUT/results.json and OUT/report.html.

    Raises:
        FileNotFoundError: no such model.
        ValueError: models that cannot be read, photos that the reference or the features lack.
    """
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.colmap.reference import reference_poses
    from xdesc_jax.evaluate.map_report import write_sfm_report
    from xdesc_jax.matching.feature_set import COPY_IT, FeatureSet
    from xdesc_jax.reports.settings import Settings, defaults_of

    model, reference, out = Path(model), Path(reference), Path(out)
    settings = {
        "model": str(model), "reference": str(reference), "scale": scale, "features": [str(f) for f in features],
        "seed": seed,
    }  # fmt: skip
    console.settings(f"xdesc evaluate sfm -> {out}", settings | {"seed": seed}, sfm)
    with console.status("reading the models"):
        found = read_model(model)
        truth = reference_poses(reference, found.names)
    shared: Covisibility | None = None
    if features:
        with FeatureSet(features, hint=COPY_IT) as known:
            known.check_names(found.names, f"the model {model}")
            held = {name: known.held(name) for name in found.names}
        shared = covisibility(found, {name: h.source if h else "none" for name, h in held.items()})
    with dry_run.several():
        making(out / RESULTS)
        making(out / REPORT)
    with console.status("aligning the model to the reference"):
        result = measure(model, found, truth, sorted(truth), scale, seed, str(reference))
    value: dict[str, Any] = {"settings": settings, **result.to_dict()}
    if shared is not None:
        value["covisibility"] = {
            "kinds": shared.kinds, "by_count": shared.by_count, "together": shared.together,
        }  # fmt: skip
    files = {name: settings[name] for name in ("model", "reference", "features")}
    with console.status("drawing the report"):
        write_sfm_report(
            out / REPORT, result, found, truth, shared,
            settings=Settings.of({"scale": scale, "seed": seed}, defaults_of(sfm)),
            provenance={"made by": "xdesc evaluate sfm", **files},
        )  # fmt: skip
    write_json(out / RESULTS, value)
    console.figures("Reconstruction", table_rows(result))
    console.result(out, figures=out / RESULTS, report=out / REPORT)
    return result
