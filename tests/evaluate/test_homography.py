"""Evaluation of stores on scenes, with descriptors whose right answer is known."""

import dataclasses
import json

import numpy as np
import pytest

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, pack_bits, unit_rows
from xdesc_jax.evaluate.homography import Comparison, Result, comparisons, evaluate, matches_of
from xdesc_jax.evaluate.measures import RATIO, Measures
from xdesc_jax.evaluate.scenes import PhotoPair, Scene, by_homography
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.matching.nearest import match

WIDTH, BITS = 24, 41
REAL, TURNED, BINARY = (
    DescriptorSpec("own-real", WIDTH),
    DescriptorSpec("own-turned", WIDTH),
    binary_spec("own-bits", BITS),
)
SPECS = {spec.name: spec for spec in (REAL, TURNED, BINARY)}
SHIFT = np.array([[1, 0, 40], [0, 1, 0], [0, 0, 1.0]])
SCENES = [
    Scene(name, tuple(PhotoPair(f"{name}/1.png", f"{name}/{k}.png", by_homography(SHIFT)) for k in (2, 3)))
    for name in ("door", "wall")
]


class Rotation:
    """The exact translator: `own-turned` is `own-real` with its values rolled by one."""

    names = (REAL.name, TURNED.name)
    specs = {REAL.name: REAL, TURNED.name: TURNED}
    space_id = "oracle"

    def __init__(self):
        self.calls, self.ratios = [], {}

    def ratio(self, source, target, *, joint=False):
        return self.ratios.get((source, target, joint))

    def gives(self, source, target):
        return True

    def embed(self, x, source, *, packed=False, frames=None, positions=None):
        self.calls.append(("embed", source))
        return x if source == REAL.name else np.roll(x, -1, axis=1)

    def translate(self, x, source, target, *, packed=False, frames=None, positions=None):
        self.calls.append((source, target))
        return np.roll(x, 1 if target == TURNED.name else -1, axis=1)


def keypoints(n):
    """[n, 2] on a grid of 7 px, so that none lies within 3 px of another's truth."""
    return np.stack([7.0 * (np.arange(n) % 10), 7.0 * (np.arange(n) // 10)], axis=1).astype(np.float32)


def write_stores(folder, photos):
    """`photos`: name -> (keypoints [N, 2], unit rows of own-real [N, WIDTH], valid [N])."""
    projection = np.random.default_rng(9).normal(size=(WIDTH, BITS))
    forms = {
        REAL.name: lambda rows: rows,
        TURNED.name: lambda rows: np.roll(rows, 1, axis=1),
        BINARY.name: lambda rows: pack_bits(rows @ projection > 0),
    }
    paths = {name: folder / f"{name}.h5" for name in SPECS}
    for name, path in paths.items():
        with StoreWriter(path, SPECS[name]) as writer:
            for photo, (xy, rows, valid) in photos.items():
                writer.write(photo, ImageFeatures(xy, forms[name](rows), valid, (200, 100)))
    return paths


def same_patches(n=37, *, shuffle_seed=None, valid=None):
    """Photos whose descriptors are identical at corresponding keypoints."""
    rows = unit_rows(np.random.default_rng(0).normal(size=(n, WIDTH)))
    xy, valid = keypoints(n), np.ones(n, bool) if valid is None else valid
    photos = {}
    for i, name in enumerate(name for scene in SCENES for name in scene.photos):
        order = np.arange(n) if shuffle_seed is None else np.random.default_rng(shuffle_seed + i).permutation(n)
        shift = 0 if name.endswith("1.png") else 40
        photos[name] = (xy[order] + np.array([shift, 0], np.float32), rows[order], valid[order])
    return photos


def by_comparison(results):
    return {result.comparison: result.mean for result in results}


def flat(measures):
    return np.hstack(dataclasses.astuple(measures))


def test_identical_descriptors_give_perfect_figures_in_every_mode(tmp_path):
    found = by_comparison(evaluate(SCENES, write_stores(tmp_path, same_patches()), Rotation()))
    for comparison, measures in found.items():
        if comparison.mode != "naive":
            assert (measures.ap, measures.mma_mean, measures.correct, measures.precision) == (1, 1, 37, 1), comparison


def test_naive_rows_compare_two_descriptors_as_they_are(tmp_path):
    found = by_comparison(evaluate(SCENES, write_stores(tmp_path, same_patches()), Rotation()))
    assert found[Comparison("naive", REAL.name, TURNED.name)].ap < 0.3


def test_permuted_rows_give_the_same_figures(tmp_path):
    straight, shuffled = tmp_path / "straight", tmp_path / "shuffled"
    before = by_comparison(evaluate(SCENES, write_stores(straight, same_patches()), Rotation()))
    after = by_comparison(evaluate(SCENES, write_stores(shuffled, same_patches(shuffle_seed=5)), Rotation()))
    for comparison, measures in before.items():
        # Equal Hamming distances are common: which is the nearest of them is a matter of order.
        if comparison.source != BINARY.name:
            assert flat(after[comparison]) == pytest.approx(flat(measures)), comparison


def test_invalid_rows_are_left_out_of_all_descriptors(tmp_path):
    valid = np.arange(37) % 5 != 0
    found = by_comparison(evaluate(SCENES, write_stores(tmp_path, same_patches(valid=valid)), Rotation()))
    measures = found[Comparison("native", BINARY.name, BINARY.name)]
    assert (measures.ap, measures.queries, measures.correct) == (1, valid.sum(), valid.sum())


def test_translators_are_told_where_the_rows_lie(tmp_path):
    """Each photo's rows come together, with the positions of those that are valid."""
    valid, told = np.arange(37) % 5 != 0, []

    class Asking(Rotation):
        def embed(self, x, source, **named):
            told.append((x, named["positions"]))
            return super().embed(x, source, **named)

        def translate(self, x, source, target, **named):
            told.append((x, named["positions"]))
            return super().translate(x, source, target, **named)

    photos = same_patches(shuffle_seed=3, valid=valid)
    evaluate(SCENES, write_stores(tmp_path, photos), Asking())
    expected = {
        (xy[ok].tobytes(), np.sort(rows[ok].astype("f4"), axis=1).tobytes()) for xy, rows, ok in photos.values()
    }
    assert {(at.tobytes(), np.sort(x, axis=1).tobytes()) for x, at in told} == expected


def test_photos_without_keypoints_give_zeros(tmp_path):
    for measures in by_comparison(evaluate(SCENES, write_stores(tmp_path, same_patches(0)), Rotation())).values():
        assert (measures.ap, measures.mma_mean, measures.correct, measures.queries) == (0, 0, 0, 0)


def test_comparisons_are_native_translated_joint_and_naive_of_equal_kind_and_width():
    plan = comparisons(SPECS, Rotation())
    assert [c.label for c in plan if c.mode == "native"] == ["own-real", "own-turned", "own-bits"]
    assert [c.label for c in plan if c.mode == "translated"] == [
        "own-real -> own-turned",
        "own-turned -> own-real",
    ]
    assert len([c for c in plan if c.mode == "joint"]) == 4
    assert [c.label for c in plan if c.mode == "naive"] == ["own-real | own-turned", "own-turned | own-real"]


def test_without_a_translator_there_are_only_native_and_naive_rows():
    assert {c.mode for c in comparisons(SPECS, None)} == {"native", "naive"}


def test_a_translator_without_joint_space_gives_no_joint_rows():
    pair = Rotation()
    pair.space_id = None
    assert {c.mode for c in comparisons(SPECS, pair)} == {"native", "translated", "naive"}


def test_a_query_is_translated_once_for_all_its_pairs_and_the_database_never(tmp_path):
    translator = Rotation()
    plan = [Comparison("translated", REAL.name, TURNED.name), Comparison("joint", REAL.name, TURNED.name)]
    evaluate(SCENES[:1], write_stores(tmp_path, same_patches()), translator, plan)
    assert translator.calls.count((REAL.name, TURNED.name)) == 1
    assert translator.calls.count(("embed", REAL.name)) == 1
    assert translator.calls.count(("embed", TURNED.name)) == 2


def test_scenes_weigh_the_same_whatever_their_number_of_pairs(tmp_path):
    photos = same_patches()
    xy, rows, valid = photos["wall/2.png"]
    photos["wall/2.png"] = (xy, unit_rows(np.random.default_rng(3).normal(size=rows.shape)), valid)
    scenes = [SCENES[0], dataclasses.replace(SCENES[1], pairs=SCENES[1].pairs[:1])]
    plan = [Comparison("native", REAL.name, REAL.name)]
    (result,) = evaluate(scenes, write_stores(tmp_path, photos), plan=plan)
    assert result.scenes["door"].ap == 1
    assert result.mean.ap == pytest.approx((1 + result.scenes["wall"].ap) / 2)
    assert result.scenes["wall"].ap < 0.2


def test_results_become_json_with_every_pair(tmp_path):
    plan = [Comparison("native", REAL.name, REAL.name)]
    (result,) = evaluate(SCENES, write_stores(tmp_path, same_patches()), plan=plan)
    as_dict = result.to_dict()
    assert (as_dict["mode"], as_dict["source"], as_dict["mean"]["ap"]) == ("native", REAL.name, 1)
    assert set(as_dict["scenes"]["wall"]["pairs"]) == {"wall/2.png", "wall/3.png"}
    assert set(as_dict["scenes"]["wall"]["mean"]) == {field.name for field in dataclasses.fields(Measures)}
    assert Result.from_dict(json.loads(json.dumps(as_dict))) == result


def test_matches_to_draw_are_the_mutual_ones(tmp_path):
    stores = write_stores(tmp_path, same_patches())
    plan = [Comparison("translated", REAL.name, TURNED.name)]
    (matched,) = matches_of(SCENES[0].pairs[0], stores, Rotation(), plan)
    assert matched.correct.all() and len(matched.correct) == 37
    np.testing.assert_array_equal(matched.database_xy - matched.query_xy, np.tile([40, 0], (37, 1)))


@pytest.mark.parametrize("name", [REAL.name, BINARY.name])
def test_matches_are_counted_as_the_matcher_finds_them(tmp_path, name):
    noise = np.random.default_rng(2).normal(scale=0.25, size=(37, WIDTH))
    photos = same_patches(shuffle_seed=3)
    xy, rows, valid = photos["door/2.png"]
    photos["door/2.png"] = (xy, unit_rows(rows + noise), valid)
    stores = write_stores(tmp_path, photos)
    (result,) = evaluate(SCENES, stores, plan=[Comparison("native", name, name)])
    with FeatureStore(stores[name]) as store:
        a, b = store.read("door/1.png").descriptors, store.read("door/2.png").descriptors
    binary = SPECS[name].binary
    found = result.pairs["door"]["door/2.png"]
    assert found.matches == len(match(a, b, binary=binary).indices)
    assert found.ratio_matches == len(match(a, b, binary=binary, ratio=RATIO).indices)
    assert 0 < found.ratio_matches < found.matches


def test_a_calibrated_ratio_changes_its_own_figures_alone(tmp_path):
    noise = np.random.default_rng(2).normal(scale=0.25, size=(37, WIDTH))
    photos = same_patches()
    xy, rows, valid = photos["door/2.png"]
    photos["door/2.png"] = (xy, unit_rows(rows + noise), valid)
    stores, translator = write_stores(tmp_path, photos), Rotation()
    plan = [Comparison(mode, REAL.name, TURNED.name) for mode in ("translated", "joint")]
    plain = by_comparison(evaluate(SCENES[:1], stores, translator, plan))
    translator.ratios = {(REAL.name, TURNED.name, True): 0.7}
    found = by_comparison(evaluate(SCENES[:1], stores, translator, plan))
    assert found[plan[0]] == plain[plan[0]]
    assert (plain[plan[1]].ratio, plain[plan[1]].calibrated_correct) == (0.9, plain[plan[1]].correct)
    assert found[plan[1]].ratio == 0.7
    assert found[plan[1]].correct == plain[plan[1]].correct > found[plan[1]].calibrated_correct > 0


def test_results_of_a_file_without_calibrated_ratios_are_read(tmp_path):
    (result,) = evaluate(SCENES, write_stores(tmp_path, same_patches()), plan=[Comparison("native", *[REAL.name] * 2)])
    older = json.loads(json.dumps(result.to_dict()))
    for scene in older["scenes"].values():
        for fields in scene["pairs"].values():
            for name in ("ratio", "calibrated_correct", "calibrated_precision"):
                del fields[name]
    assert Result.from_dict(older) == result


def test_stores_of_different_keypoints_are_refused(tmp_path):
    paths = write_stores(tmp_path / "a", same_patches())
    paths[TURNED.name] = write_stores(tmp_path / "b", same_patches(36))[TURNED.name]
    with pytest.raises(ValueError, match=r"own-turned.h5: 'door/1.png' has 36 keypoints that differ from the 37"):
        evaluate(SCENES, paths)


def test_keypoints_that_hloc_rounded_to_float16_are_the_same_and_the_exact_ones_are_measured(tmp_path):
    exact = {name: (xy + np.float32(0.3701), *rest) for name, (xy, *rest) in same_patches().items()}
    half = {name: (xy.astype(np.float16).astype(np.float32), *rest) for name, (xy, *rest) in exact.items()}
    paths = write_stores(tmp_path / "a", exact)
    expected = evaluate(SCENES, paths)
    paths[REAL.name] = write_stores(tmp_path / "b", half)[REAL.name]
    assert evaluate(SCENES, paths) == expected


def test_photos_that_a_store_lacks_are_listed_before_any_work(tmp_path):
    photos = same_patches()
    del photos["wall/3.png"]
    with pytest.raises(ValueError, match=r"own-real.h5: lacks 1 of 6 photos: wall/3.png"):
        evaluate(SCENES, write_stores(tmp_path, photos))


def test_a_store_that_holds_another_descriptor_is_refused(tmp_path):
    paths = write_stores(tmp_path, same_patches())
    with pytest.raises(ValueError, match=r"holds 'own-real', but 'own-turned' was asked for"):
        evaluate(SCENES, {TURNED.name: paths[REAL.name]})


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison("native", REAL.name, REAL.name),
        Comparison("translated", REAL.name, TURNED.name),
        Comparison("joint", REAL.name, TURNED.name),
    ],
)
def test_a_bad_row_is_named_with_its_file_and_photo(tmp_path, comparison):
    photos = same_patches()
    xy, rows, valid = photos["wall/1.png"]
    photos["wall/1.png"] = (xy, np.where(np.arange(37)[:, None] == 5, np.nan, rows), valid)
    paths = write_stores(tmp_path, photos)
    with pytest.raises(ValueError, match=r"own-real.h5: 'wall/1.png': row 5 .* not finite"):
        evaluate(SCENES, paths, Rotation(), [comparison])


@pytest.mark.parametrize("spec", [DescriptorSpec(REAL.name, WIDTH + 1), binary_spec(REAL.name, WIDTH)])
def test_a_store_of_another_width_or_kind_than_the_translators_is_refused_before_any_work(tmp_path, spec):
    translator = Rotation()
    translator.specs = {**Rotation.specs, REAL.name: spec}
    message = rf"own-real.h5: 'own-real' is real of width 24, but the translator's is {spec.kind} of width {spec.width}"
    with pytest.raises(ValueError, match=message):
        evaluate(SCENES, write_stores(tmp_path, same_patches()), translator)
    assert translator.calls == []


def test_nothing_to_evaluate_is_refused():
    with pytest.raises(ValueError, match="no feature files"):
        evaluate(SCENES, {})
