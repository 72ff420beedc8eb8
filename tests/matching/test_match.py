"""The stage `xdesc match` and its file format."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.in_use import check_refused_while_in_use
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.features import store
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.files.claim import beside
from xdesc_jax.matching import match as match_stage
from xdesc_jax.matching.matches import Extent, MatchFile, MatchWriter
from xdesc_jax.matching.nearest import match as match_rows

PLAIN = DescriptorSpec("plain", 16)
BITS = binary_spec("bits", 21)
PHOTOS = {"a/1.jpg": 9, "b 2.jpg": 7, "é.png": 0, "c.jpg": 1}


def write_store(path, spec=PLAIN, photos=PHOTOS, seed=0):
    """Noisy copies of the same rows in every photo; row 2 is not valid."""
    rng = np.random.default_rng(0)
    base = rng.random((20, 21)) < 0.5 if spec.binary else rng.normal(size=(20, spec.width))
    rng = np.random.default_rng(seed)
    with StoreWriter(path, spec) as writer:
        for name, n in photos.items():
            if spec.binary:
                rows = base[:n] ^ (rng.random((n, 21)) < 0.05)
            else:
                rows = unit_rows(base[:n] + 0.1 * rng.normal(size=(n, spec.width)))
            writer.write(
                name,
                ImageFeatures(np.zeros((n, 2), np.float32), stored(rows, spec), np.arange(n) != 2, (64, 48)),
            )
    return path


def write_pairs(path, *pairs, separator=" "):
    path.write_text("".join(f"{separator.join(pair)}\n" for pair in pairs), encoding="utf-8")
    return path


def run(*arguments):
    return cli.main(["match", *map(str, arguments)])


@pytest.mark.parametrize("spec", [PLAIN, BITS], ids=["real", "binary"])
def test_matches_lie_in_hlocs_layout(tmp_path, spec):
    features = write_store(tmp_path / "features.h5", spec)
    assert run(features, tmp_path / "matches.h5", "--pairs", "exhaustive") == 0
    with FeatureStore(features) as store:
        x, y = (store.read(n).descriptors for n in ("a/1.jpg", "b 2.jpg"))
    expected = match_rows(x, y, binary=spec.binary, ratio=0.9)
    assert len(expected.indices) >= 3
    with h5py.File(tmp_path / "matches.h5") as file:
        matches0, scores = (np.array(file["a-1.jpg"]["b 2.jpg"][k]) for k in ("matches0", "matching_scores0"))
        assert len(file["a-1.jpg"]) + len(file["b 2.jpg"]) + len(file["c.jpg"]) == 6
    assert matches0.shape == scores.shape == (9,) and matches0.dtype == np.int32
    i = np.flatnonzero(matches0 >= 0)
    assert np.stack([i, matches0[i]], axis=1).tolist() == expected.indices.tolist()
    assert matches0[2] == -1 and (matches0[matches0 < 0] == -1).all()
    np.testing.assert_allclose(scores[i], expected.scores, atol=1e-6)


@pytest.mark.parametrize("scored", [True, False], ids=["scores", "no scores"])
def test_near_duplicates_are_not_matched_and_indices_stay_those_of_the_file(tmp_path, scored):
    """Pairs of rows 1 px apart, of which one is left; every third row is invalid, and leaves out none."""
    rng = np.random.default_rng(5)
    photos, kept = {}, {}
    base = unit_rows(rng.normal(size=(24, PLAIN.width)))
    with StoreWriter(tmp_path / "features.h5", PLAIN) as writer:
        for name in ("a.jpg", "b.jpg"):
            xy = np.repeat(10.0 * np.arange(12)[:, None], 2, axis=0) + [[0, 0], [1, 0]] * 12
            valid, scores = np.arange(24) % 3 != 0, rng.random(24).astype(np.float32)
            rows = unit_rows(base + 0.05 * rng.normal(size=base.shape)) * valid[:, None]
            given = scores if scored else None
            order = rng.permutation(24) if name == "b.jpg" else np.arange(24)
            fields = (xy[order].astype(np.float32), rows[order].astype(np.float32), valid[order], (200, 48))
            writer.write(name, ImageFeatures(*fields, scores=None if given is None else given[order]))
            photos[name] = fields[1]
            at = np.argsort(order)  # where each of the 24 stands
            kept[name] = []
            for one, two in zip(at[::2], at[1::2], strict=True):
                usable = [row for row in (one, two) if fields[2][row]]
                kept[name].append(max(usable, key=lambda row: given[order][row]) if scored else min(usable))
    assert run(tmp_path / "features.h5", tmp_path / "m.h5", "--pairs", "exhaustive", "--nms", "1.5") == 0
    a, b = (np.sort(kept[name]) for name in photos)
    expected = match_rows(photos["a.jpg"][a], photos["b.jpg"][b], ratio=0.9).indices
    with MatchFile(tmp_path / "m.h5") as file:
        found = file.read("a.jpg", "b.jpg")[0]
    assert found.tolist() == np.column_stack([a[expected[:, 0]], b[expected[:, 1]]]).tolist() and len(found) > 3
    figures = json.loads((tmp_path / "m.h5.json").read_text())
    assert figures["rows_near_others"] == 8 and figures["rows_never_matched"] == 16


def test_without_nms_all_are_matched_and_the_configuration_is_as_before(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5")  # all at one place
    words = (features, tmp_path / "m.h5", "--pairs", "exhaustive")
    assert run(*words, "--nms", "0") == 0
    figures = json.loads((tmp_path / "m.h5.json").read_text())
    assert figures["matches"] > 3 and "nms" not in figures["config"] and "rows_near_others" not in figures
    assert run(*words) == 0 and "up to date" in capsys.readouterr().out
    assert run(*words, "--nms", "1") == 2 and "another configuration (nms: 0.0 -> 1.0)" in capsys.readouterr().err
    assert run(*words, "--nms", "1", "--overwrite") == 0
    assert json.loads((tmp_path / "m.h5.json").read_text())["matches"] <= 3
    assert run(*words, "--nms", "-1", "--overwrite") == 2 and "nms is -1.0 px" in capsys.readouterr().err


def test_matches_are_read_in_either_order(tmp_path):
    with MatchWriter(tmp_path / "m.h5") as writer:
        writer.write("a/1", "b", 5, np.array([[1, 3], [4, 0]], np.int32), np.array([0.5, 0.75], np.float32))
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.pairs() == [("a/1", "b")]
        assert file.read("a/1", "b")[0].tolist() == [[1, 3], [4, 0]]
        indices, scores = file.read("b", "a/1")
        assert indices.tolist() == [[3, 1], [0, 4]] and scores.tolist() == [0.5, 0.75]
        with pytest.raises(KeyError, match="m.h5: no matches of 'b' and 'c'"):
            file.read("b", "c")


def test_keypoints_of_both_photos_are_counted_where_the_file_says_how_many(tmp_path):
    none, extents = (np.zeros((0, 2), np.int32), np.zeros(0, np.float32)), [Extent(n, np.zeros(2)) for n in (5, 7)]
    with MatchWriter(tmp_path / "m.h5") as writer:
        writer.write("a", "b", 5, *none)
        writer.write("a", "c", 5, *none, tuple(extents))
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.rows("a", "b") == 5 and file.rows("b", "a") is None
        assert file.rows("a", "c") == 5 and file.rows("c", "a") == 7


def test_a_pair_is_not_written_twice(tmp_path):
    none = (np.zeros((0, 2), np.int32), np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="written twice"):
        with MatchWriter(tmp_path / "m.h5") as writer:
            writer.write("a", "b", 3, *none)
            writer.write("b", "a", 3, *none)
    assert not (tmp_path / "m.h5").exists()


def test_a_match_file_cut_short_or_newer_is_refused(tmp_path):
    path = tmp_path / "m.h5"
    with MatchWriter(path):
        pass
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 2
    with pytest.raises(ValueError, match="m.h5: format version 2"):
        MatchFile(path)
    path.write_bytes(path.read_bytes()[:96])
    with pytest.raises(ValueError, match="m.h5: not a readable HDF5 file, or cut short"):
        MatchFile(path)


def test_reversed_repeated_and_self_pairs_are_dropped_and_counted(tmp_path):
    features = write_store(tmp_path / "features.h5")
    pairs = write_pairs(
        tmp_path / "pairs.txt", ("c.jpg", "a/1.jpg"), ("a/1.jpg", "c.jpg"), ("c.jpg", "a/1.jpg"),
        ("c.jpg", "c.jpg"), ("é.png", "c.jpg"),
    )  # fmt: skip
    assert run(features, tmp_path / "m.h5", "--pairs", pairs) == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.pairs() == [("a/1.jpg", "c.jpg"), ("c.jpg", "é.png")]
    summary = json.loads((tmp_path / "m.h5.json").read_text())
    assert [summary[k] for k in ("pairs_given", "self_pairs", "duplicates", "pairs_matched")] == [5, 1, 2, 2]
    assert summary["pairs_without_matches"] == 1


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_names_with_blanks_are_told_apart(tmp_path, separator):
    features = write_store(tmp_path / "features.h5")
    pairs = write_pairs(tmp_path / "pairs.txt", ("b 2.jpg", "a/1.jpg"), ("c.jpg", "b 2.jpg"), separator=separator)
    assert run(features, tmp_path / "m.h5", "--pairs", pairs) == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert sorted(file.pairs()) == [("a/1.jpg", "b 2.jpg"), ("b 2.jpg", "c.jpg")]


def test_a_line_without_two_names_is_refused_with_its_number(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5")
    pairs = write_pairs(tmp_path / "pairs.txt", ("c.jpg", "a/1.jpg"), ("c.jpg",))
    assert run(features, tmp_path / "m.h5", "--pairs", pairs) == 2
    assert "pairs.txt:2: expected two photo names" in capsys.readouterr().err


def test_missing_names_are_listed_before_any_work(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5")
    pairs = write_pairs(tmp_path / "pairs.txt", ("c.jpg", "a/1.jpg"), *((f"A/{i}.jpg", "c.jpg") for i in range(7)))
    assert run(features, tmp_path / "m.h5", "--pairs", pairs) == 2
    error = capsys.readouterr().err
    assert "pairs.txt names 7 photos not in" in error and "features.h5" in error
    assert "A/4.jpg" in error and "A/5.jpg" not in error and "a/1.jpg" in error
    assert not (tmp_path / "m.h5").exists()


def test_two_files_match_first_names_to_second(tmp_path):
    query = write_store(tmp_path / "query.h5", photos={"z.jpg": 8}, seed=1)
    database = write_store(tmp_path / "database.h5")
    pairs = write_pairs(tmp_path / "pairs.txt", ("z.jpg", "a/1.jpg"))
    assert run(query, tmp_path / "m.h5", "--pairs", pairs, "--other", database) == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.pairs() == [("z.jpg", "a/1.jpg")]
        assert file.read("z.jpg", "a/1.jpg")[0].tolist() == [[i, i] for i in range(8) if i != 2]
    assert run(query, tmp_path / "all.h5", "--pairs", "exhaustive", "--other", database) == 0
    with MatchFile(tmp_path / "all.h5") as file:
        assert len(file.pairs()) == 4


def test_embeddings_of_two_spaces_are_refused(tmp_path, capsys):
    a = write_store(tmp_path / "a.h5", DescriptorSpec("embedding:0123456789ab", 16))
    b = write_store(tmp_path / "b.h5", DescriptorSpec("embedding:ba9876543210", 16))
    assert run(a, tmp_path / "m.h5", "--pairs", "exhaustive", "--other", b) == 2
    error = capsys.readouterr().err
    assert "'embedding:0123456789ab'" in error and "'embedding:ba9876543210'" in error and "joint space" in error


def test_photos_whose_names_collide_in_the_file_are_refused(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5", photos={"a/b.jpg": 3, "a-b.jpg": 3, "c.jpg": 3})
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 2
    error = capsys.readouterr().err
    assert "'a/b.jpg'" in error and "'a-b.jpg'" in error


def test_a_file_that_does_not_say_its_descriptor_matches_when_told(tmp_path, capsys, rng):
    with h5py.File(tmp_path / "hloc.h5", "w") as file:
        for name in ("x.jpg", "y.jpg"):
            file[f"{name}/keypoints"] = np.zeros((3, 2), np.float16)
            file[f"{name}/descriptors"] = unit_rows(rng.normal(size=(3, 128))).T
    assert run(tmp_path / "hloc.h5", tmp_path / "m.h5", "--pairs", "exhaustive") == 2
    assert "does not say which descriptor it holds" in capsys.readouterr().err
    assert run(tmp_path / "hloc.h5", tmp_path / "m.h5", "--pairs", "exhaustive", "--descriptor", "hardnet") == 0


def test_a_file_of_keypoints_alone_has_nothing_to_match_and_says_so_once(tmp_path, capsys):
    with h5py.File(tmp_path / "loftr.h5", "w") as file:
        for name in ("x.jpg", "y.jpg"):
            file[f"{name}/keypoints"] = np.zeros((3, 2), np.float32)
    assert run(tmp_path / "loftr.h5", tmp_path / "m.h5", "--pairs", "exhaustive") == 2
    assert f"no photo in {tmp_path / 'loftr.h5'} has descriptors" in capsys.readouterr().err.replace("\n", " ")


def test_rows_that_are_not_finite_never_match_and_are_counted(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5", photos={"a.jpg": 5, "b.jpg": 5})
    with h5py.File(features, "r+") as file:
        file["a.jpg/descriptors"][3, 0] = np.nan
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.read("a.jpg", "b.jpg")[0].tolist() == [[1, 1], [3, 3], [4, 4]]
    summary = json.loads((tmp_path / "m.h5.json").read_text())
    assert (summary["rows_never_matched"], summary["rows_not_finite"]) == (3, 1)
    told = " ".join(capsys.readouterr().err.split())
    assert "1 row of 1 photo can never match, for values that are not finite, first 1 of 'a.jpg'" in told


def test_rows_that_never_match_are_counted_by_a_run_that_goes_on(tmp_path, monkeypatch):
    features = write_store(tmp_path / "features.h5", photos={"a.jpg": 5, "b.jpg": 5})

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(match_stage, "_write_file", stop)
        assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 130
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    assert json.loads((tmp_path / "m.h5.json").read_text())["rows_never_matched"] == 2


def test_pairs_in_both_orders_of_two_files_of_the_same_photos_are_told(tmp_path, capsys):
    left = write_store(tmp_path / "left.h5", photos={"l.jpg": 5, "r.jpg": 5})
    right = write_store(tmp_path / "right.h5", photos={"l.jpg": 5, "r.jpg": 5})
    pairs = write_pairs(tmp_path / "pairs.txt", ("r.jpg", "l.jpg"), ("l.jpg", "r.jpg"))
    assert run(left, tmp_path / "m.h5", "--pairs", pairs, "--other", right) == 0
    assert json.loads((tmp_path / "m.h5.json").read_text())["pairs_in_both_orders"] == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "1 pair is in both orders, first 'l.jpg' and 'r.jpg': a match file has one place for two photos" in told
    with MatchFile(tmp_path / "m.h5") as file:
        assert file.pairs() == [("r.jpg", "l.jpg")]


def test_all_pairs_of_two_files_of_the_same_photos_are_no_reason_to_warn(tmp_path, capsys):
    left, right = (write_store(tmp_path / f"{n}.h5", photos={"l.jpg": 5, "r.jpg": 5}) for n in ("left", "right"))
    assert run(left, tmp_path / "m.h5", "--pairs", "exhaustive", "--other", right) == 0
    assert json.loads((tmp_path / "m.h5.json").read_text())["pairs_in_both_orders"] == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "warning" not in told.lower() and "both orders" not in told
    assert f"{left} and {right} hold photos of the same names: any two are matched once, as 'l.jpg' of" in told
    with MatchFile(tmp_path / "m.h5") as file:
        assert ("l.jpg", "r.jpg") in file.pairs() and ("r.jpg", "l.jpg") not in file.pairs()


def test_finished_work_is_skipped_and_other_work_refused(tmp_path, capsys):
    features, out = write_store(tmp_path / "features.h5"), tmp_path / "m.h5"
    assert run(features, out, "--pairs", "exhaustive") == 0
    before = out.stat().st_mtime_ns
    assert run(features, out, "--pairs", "exhaustive") == 0
    assert "up to date" in capsys.readouterr().out
    assert run(features, out, "--pairs", "exhaustive", "--ratio", "0.8") == 2
    assert "made with another configuration (ratio: auto -> 0.8)" in capsys.readouterr().err
    assert out.stat().st_mtime_ns == before
    assert run(features, out, "--pairs", "exhaustive", "--ratio", "0.8", "--overwrite") == 0


def test_the_ratio_test_can_be_left_out(tmp_path):
    features = write_store(tmp_path / "features.h5")
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive", "--ratio", "None") == 0


@pytest.mark.parametrize("out", ["features.h5", "other.h5", "pairs.txt", "folder/../features.h5"])
def test_an_input_is_never_the_output(tmp_path, capsys, out):
    features, other = write_store(tmp_path / "features.h5"), write_store(tmp_path / "other.h5")
    pairs = write_pairs(tmp_path / "pairs.txt", ("a/1.jpg", "b 2.jpg"))
    (tmp_path / "folder").mkdir()
    before = (tmp_path / out).read_bytes()
    assert run(features, tmp_path / out, "--pairs", pairs, "--other", other, "--overwrite") == 2
    assert f"{out}: is the input itself" in capsys.readouterr().err.replace("\n", "")
    assert (tmp_path / out).read_bytes() == before


@pytest.mark.parametrize(
    ("keys", "told_as"),
    [((), "a feature file"), (("keypoints",), "a feature file"), (("global_descriptor",), "a file of global features")],
)
def test_features_are_not_lost_where_the_output_is_forgotten(tmp_path, capsys, keys, told_as):
    """Of our own, of keypoints alone, of one vector a photo."""
    features, other = write_store(tmp_path / "features.h5"), write_store(tmp_path / "other.h5")
    if keys:
        with h5py.File(other, "w") as file:
            for key in keys:
                file[f"a.jpg/{key}"] = np.ones((2, 2))
    before = other.read_bytes()
    assert run(features, other, "--pairs", "exhaustive", "--overwrite") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"other.h5: is {told_as}, expected a match file, which is named behind all features" in told
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "holds no pair"), (b" \n\n", "holds no pair"), (b"\xe9.png c.jpg", "not UTF-8")]
)
def test_a_pair_list_without_pairs_or_not_utf8_is_refused_by_name(tmp_path, capsys, content, message):
    (tmp_path / "pairs.txt").write_bytes(content)
    features = write_store(tmp_path / "features.h5")
    assert run(features, tmp_path / "m.h5", "--pairs", tmp_path / "pairs.txt") == 2
    assert f"pairs.txt: {message}" in capsys.readouterr().err
    assert not (tmp_path / "m.h5").exists()


def test_a_lost_summary_is_made_again(tmp_path):
    features, summary = write_store(tmp_path / "features.h5"), tmp_path / "m.h5.json"
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    before = summary.read_text()
    summary.unlink()
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    assert summary.read_text() == before


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("two_files", [False, True])
def test_each_feature_file_is_opened_and_listed_once(tmp_path, monkeypatch, two_files):
    listed, groups_with = [], store.groups_with
    monkeypatch.setattr(store, "groups_with", lambda f, key: listed.append(Path(f.filename)) or groups_with(f, key))
    files = [write_store(tmp_path / f"{name}.h5") for name in "ab"[: 1 + two_files]]
    other = ["--other", files[1]] if two_files else []
    assert run(files[0], tmp_path / "m.h5", "--pairs", "exhaustive", *other) == 0
    assert listed == files


def test_a_match_file_made_twice_at_once_says_who_makes_it(tmp_path, capsys):
    features, out = write_store(tmp_path / "features.h5"), tmp_path / "made" / "m.h5"
    check_refused_while_in_use(["match", features, out, "--pairs", "exhaustive"], beside(out), out, capsys)


def test_features_that_cannot_be_read_leave_nothing_beside_the_result(tmp_path, capsys):
    features = write_store(tmp_path / "features.h5", photos={"a.jpg": 5, "b.jpg": 5})
    with h5py.File(features, "r+") as file:
        file["a.jpg/keypoints"][3, 0] = np.nan
    assert run(features, tmp_path / "m.h5", "--pairs", "exhaustive") == 2
    assert "'a.jpg': keypoint 3 is at" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["features.h5"]
