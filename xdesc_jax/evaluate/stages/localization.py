"""The stage `xdesc evaluate localization`: poses of queries against true ones.

In: what `xdesc localize` wrote, or poses as the benchmarks' text, and a reference model. Out: shares of
queries within three thresholds, median errors, errors per query; table, JSON and an HTML page. A query
without a pose counts as not localised.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax import console
from xdesc_jax.colmap.lists import read_queries
from xdesc_jax.colmap.reference import reference_poses
from xdesc_jax.evaluate.alignment import NotAlignable, align
from xdesc_jax.evaluate.localization import read_localized, table_rows, to_dict
from xdesc_jax.evaluate.poses import MAPPING, PoseErrors, Scale, pose_errors, spacing
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import making, write_json

RESULTS, REPORT = "results.json", "report.html"


def localization(
    results: Path,
    *,
    reference: Path,
    out: Path,
    scale: Scale = "metric",
    queries: Path | None = None,
    map: Path | None = None,
    seed: int = 0,
) -> PoseErrors:
    """Measures localised queries against true poses.

    Args:
        results: folder or `results.json` of `xdesc localize`, or a text of poses ('name qw qx qy qz tx ty tz').
        reference: folder of a COLMAP model with the true poses, or a model of another program: transforms.json,
            OpenSfM, OpenMVG, Bundler, NVM.
        out: folder for the table (JSON) and the report.
        scale: 'metric' where the reference is in metres; 'relative' divides positions by u, the median
            distance from a reference camera to its nearest.
        queries: list of all queries (name first in each line), so that those a text of poses leaves out
            count as not localised.
        map: folder of the COLMAP model that the queries were localised in, where it is not in the reference's
            frame: it is aligned by its photos, robustly, and the queries with it.
        seed: of the alignment.

    Returns:
        The errors, which are also in OUT/results.json and OUT/report.html.

    Raises:
        FileNotFoundError: no such file.
        ValueError: files that cannot be read, queries that the reference lacks, or a map that cannot be aligned.
    """
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.evaluate.map_report import write_localization_report
    from xdesc_jax.reports.settings import Settings, defaults_of

    results, reference, out = Path(results), Path(reference), Path(out)
    settings = {
        "results": str(results),
        "reference": str(reference),
        "scale": scale,
        "queries": queries and str(queries),
        "map": map and str(map),
    }
    console.settings(f"xdesc evaluate localization -> {out}", settings | {"seed": seed}, localization)
    found = read_localized(results)
    true = reference_poses(reference, found.asked)
    listed = read_queries(queries, true) if queries is not None else ()
    asked = list(dict.fromkeys([*listed, *found.asked]))
    if not asked:
        raise ValueError(f"{results}: names no query")
    with dry_run.several():
        making(out / RESULTS)
        making(out / REPORT)
    poses = found.poses
    if map is not None:
        unit = 1.0 if scale == "metric" else spacing(list(true.values()), str(reference))
        try:
            moved = align(Path(map), read_model(Path(map)), true, MAPPING[scale][-1][0] * unit, seed)
        except NotAlignable as error:
            raise ValueError(f"{map}: cannot be aligned to {reference}: {error}") from error
        poses = {name: moved.pose(pose) for name, pose in poses.items()}
    errors = pose_errors(poses, true, asked, scale, str(reference))
    given = {"scale": scale, "queries": settings["queries"], "map": map and str(map), "seed": seed}
    with console.status("drawing the report"):
        write_localization_report(
            out / REPORT, errors, found, settings=Settings.of(given, defaults_of(localization)),
            provenance={"made by": "xdesc evaluate localization", "results": str(results), "reference": str(reference)},
        )  # fmt: skip
    write_json(out / RESULTS, {"settings": settings, **to_dict(errors, found)})
    console.figures("Localisation", table_rows(errors))
    console.result(out, figures=out / RESULTS, report=out / REPORT)
    return errors
