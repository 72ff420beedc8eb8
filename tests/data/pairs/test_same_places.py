"""Keypoints of two detectors at the same places, against loops over all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.cli import main
from xdesc_jax.data.paired import PairedStores
from xdesc_jax.data.pairs.same_places import OCTAVES, TURN_DEG, same_places
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

WITHIN_PX = 2.5


def photo(rng, n, framed, spec="sift"):
    xy = rng.uniform(0, 60, (n, 2)).astype(np.float32)
    rows = unit_rows(rng.random((n, get_spec(spec).width)) + 0.1)
    shapes = {"scales": np.exp2(rng.uniform(0, 1, n)), "oris": rng.uniform(-0.6, 0.6, n) + np.pi} if framed else {}
    return ImageFeatures(xy, rows, rng.random(n) < 0.9, (64, 64), **{k: v.astype("f4") for k, v in shapes.items()})


def fits(a, i, b, j):
    if not (a.valid[i] and b.valid[j]) or np.linalg.norm(a.keypoints[i] - b.keypoints[j]) > WITHIN_PX:
        return False
    if a.scales is None or b.scales is None:
        return True
    turn = abs((a.oris[i] - b.oris[j] + np.pi) % (2 * np.pi) - np.pi)
    return abs(np.log2(a.scales[i] / b.scales[j])) <= OCTAVES and np.degrees(turn) <= TURN_DEG


def nearest(a, i, b):
    able = [j for j in range(len(b)) if fits(a, i, b, j)]
    return min(able, key=lambda j: np.linalg.norm(a.keypoints[i] - b.keypoints[j]), default=-1)


@pytest.mark.parametrize("framed", [(True, True), (True, False), (False, False)])
def test_rows_of_a_place_are_each_others_nearest_that_agree(framed):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        a, b = photo(rng, 90, framed[0]), photo(rng, 70, framed[1])
        expected = [(i, nearest(a, i, b)) for i in range(len(a))]
        expected = [(i, j) for i, j in expected if j >= 0 and nearest(b, j, a) == i]
        found = same_places([a, b], [a.valid, b.valid], WITHIN_PX)
        assert list(zip(*found, strict=True)) == expected and len(expected) > 5


def test_of_three_files_the_places_that_all_have_stay():
    rng = np.random.default_rng(5)
    files = [photo(rng, 120, False) for _ in range(3)]
    usable = [f.valid for f in files]
    found = same_places(files, usable, 5.0)
    pairs = [dict(zip(*same_places([files[0], f], [usable[0], u], 5.0), strict=True)) for f, u in
             zip(files[1:], usable[1:], strict=True)]  # fmt: skip
    both = [i for i in pairs[0] if i in pairs[1]]
    assert found[0].tolist() == both and 3 < len(both) < len(pairs[0])
    assert [list(rows) for rows in found[1:]] == [[p[i] for i in both] for p in pairs]


@pytest.mark.parametrize("counts", [(0, 5), (5, 0), (1, 1)])
def test_photos_of_few_keypoints(counts):
    rng = np.random.default_rng(0)
    files = [photo(rng, n, True) for n in counts]
    found = same_places(files, [np.ones(n, bool) for n in counts], 1e-3)
    assert [len(rows) for rows in found] == [0, 0]


def written(folder, a, b, other=None):
    for name, found in (("xfeat", a), ("sift", b)):
        with StoreWriter(folder / f"{name}.h5", get_spec(name)) as store:
            store.write("0.png", found)
            if other is not None:
                store.write(other, found)
    return folder / "xfeat.h5", folder / "sift.h5"


def test_records_have_the_rows_of_places_and_the_frames_of_those_that_have_some(tmp_path):
    rng = np.random.default_rng(3)
    a, b = photo(rng, 90, False, "xfeat"), photo(rng, 70, True)
    a.descriptors[~a.valid] = b.descriptors[~b.valid] = 0
    paths = written(tmp_path, a, b)
    i, j = same_places([a, b], [a.valid, b.valid], WITHIN_PX)
    with PairedStores(paths, within_px=WITHIN_PX) as source, source.reader().open() as read:
        for rows in (dict(source.rows())["0.png"], read("0.png")):
            np.testing.assert_array_equal(rows["xfeat"], a.descriptors[i])
            np.testing.assert_array_equal(rows["sift"], b.descriptors[j])
            np.testing.assert_array_equal(rows["keypoint"], np.column_stack([b.keypoints, b.scales, b.oris])[j])
    info = records(tmp_path / "out", paired=paths, within=WITHIN_PX, format="npy", validation_share=0)
    assert info.counts["train"] == len(i) and info.config["within_px"] == WITHIN_PX
    with pytest.raises(ValueError, match="90 keypoints in .*xfeat.h5, 70 in .*sift.h5"):
        PairedStores(paths)


def test_a_tolerance_that_cannot_be_is_refused(tmp_path, capsys):
    rng = np.random.default_rng(3)
    paths = written(tmp_path, photo(rng, 9, False, "xfeat"), photo(rng, 7, True))
    given = ["records", str(tmp_path / "out")]
    assert main([*given, "--paired", *map(str, paths), "--within", "-1"]) == 2
    assert "--within is -1, expected px over 0" in capsys.readouterr().err
    assert main([*given, "--photos", str(tmp_path), "--within", "2"]) == 2
    assert "--within is for --paired feature files" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
