"""Further descriptors for records that hold patches."""

import numpy as np
import pytest

from tests.support.pair_records import pair_records
from tests.support.stopped import Calls, Stopped
from xdesc_jax.data import open_source
from xdesc_jax.data.build import build
from xdesc_jax.data.describe import describe, either
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import KEYPOINT, PAIR, PATCH, RecordInfo
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.describe import describe_patches

pytest.importorskip("jax", reason="needs the features extra")


class Patches:
    """Random patches of three photos, with a descriptor of their own."""

    specs = {"mine": DescriptorSpec("mine", 3, normalized=False)}
    names = ["a", "b", "c"]
    has_pairs = has_points = False
    unit = "photos"
    action = "making"
    config = {"made": "at random"}

    def __init__(self, has_patches=True):
        self.has_patches = has_patches

    def rows(self):
        for i, name in enumerate(self.names):
            rng = np.random.default_rng(i)
            patches = rng.integers(0, 256, (5 + i, 32, 32), dtype=np.uint8)
            rows = {
                KEYPOINT: rng.random((len(patches), 4), np.float32),
                "mine": rng.random((len(patches), 3), np.float32),
            }
            yield name, rows | ({PATCH: patches} if self.has_patches else {})


@pytest.fixture(params=["npy", "tfds"])
def made(request, tmp_path):
    if request.param == "tfds":
        pytest.importorskip("tensorflow_datasets", reason="needs the train extra")
    settings = RecordSettings(request.param, 0.3, rows_per_shard=4)
    return build(tmp_path / "records", Patches(), tmp_path / "work", settings, {"made": request.param})


def rows_of(info, split, columns, patches=False):
    source = open_source(info.path, split, 400, columns, patches, shuffle=False, remainder="pad")
    batch = next(iter(source.epoch(0)))
    return {name: values[batch["mask"]] for name, values in batch.items()}


def test_rows_keep_their_place_and_get_the_descriptors_of_their_patches(made, tmp_path):
    info = describe(made.path, tmp_path / "more", descriptors=("sift", "brief"))
    assert info.format == "npy" and info.counts == made.counts and not info.has_patches
    assert list(info.specs) == ["mine", "sift", "brief"]
    for split in ("train", "validation"):
        before, after = rows_of(made, split, ["mine"], True), rows_of(info, split, None)
        np.testing.assert_array_equal(after["mine"], before["mine"])
        np.testing.assert_array_equal(after["photo"], before["photo"])
        for name, expected in describe_patches(["sift", "brief"], before[PATCH]).items():
            np.testing.assert_array_equal(after[name], expected)


def test_the_same_again_is_found_and_other_descriptors_refused(made, tmp_path, capsys):
    describe(made.path, tmp_path / "more", descriptors=("brief",), patches=True)
    info = describe(made.path, tmp_path / "more", descriptors=("brief",), patches=True)
    assert info.has_patches and "up to date" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="another configuration"):
        describe(made.path, tmp_path / "more", descriptors=("sift",), patches=True)


def test_records_without_patches_are_refused(tmp_path):
    info = build(tmp_path / "r", Patches(False), tmp_path / "work", RecordSettings("npy"), {})
    with pytest.raises(ValueError, match=r"r: records without patches \(columns: mine, keypoint, photo\)"):
        describe(info.path, tmp_path / "more", descriptors=("brief",))
    assert not (tmp_path / "more").exists()


def test_a_descriptor_that_needs_the_photo_is_refused_before_anything_is_written(made, tmp_path):
    with pytest.raises(ValueError, match="opencv-sift"):
        describe(made.path, tmp_path / "more", descriptors=("opencv-sift",))
    assert not (tmp_path / "more").exists()


def test_patches_are_described_a_shard_at_a_time(made, tmp_path, monkeypatch):
    from xdesc_jax.features import describe as features

    counts, whole = [], features.describe_patches
    monkeypatch.setattr(
        features,
        "describe_patches",
        lambda names, patches, *rest: counts.append(len(patches)) or whole(names, patches, *rest),
    )
    describe(made.path, tmp_path / "more", descriptors=("brief",))
    assert max(made.counts.values()) > 4 and max(counts) == 4 and sum(counts) == sum(made.counts.values())


@pytest.mark.parametrize("pairs", [False, True])
def test_a_stopped_run_goes_on_shard_by_shard_and_ends_as_an_undisturbed_one(tmp_path, monkeypatch, pairs, caplog):
    from xdesc_jax.features import describe as features

    settings = RecordSettings("npy", 0.3, rows_per_shard=4)
    given = build(tmp_path / "records", Patches(), tmp_path / "work", settings, {}).path
    if pairs:
        given = pair_records(tmp_path / "pairs", photos=8, rows=40)
    described = Calls(monkeypatch, features, "describe_patches")
    describe(given, tmp_path / "expected", descriptors=("brief",))
    whole, out, described.done, described.until = described.done, tmp_path / "made" / "out", 0, 2
    with pytest.raises(Stopped):
        describe(given, out, descriptors=("brief",))
    with pytest.raises(Stopped):  # what was made for other descriptors is not taken
        describe(given, out, descriptors=("sift",))
    described.done = 0
    with pytest.raises(Stopped):
        describe(given, out, descriptors=("brief",))
    described.done, described.until = 0, None
    with caplog.at_level("INFO", "xdesc_jax"):
        describe(given, out, descriptors=("brief",))
    assert described.done == whole - 2 and "described already" in caplog.text
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    for file in (tmp_path / "expected").iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("across_views", [False, True])
def test_rows_of_pairs_are_of_either_patch_all_alike_or_each_by_itself(tmp_path, across_views):
    asked, names = pair_records(tmp_path / "pairs", photos=8, rows=40), ("sift", "brief")
    info = describe(asked, tmp_path / "rows", descriptors=names, across_views=across_views, seed=3)
    assert list(info.columns) == ["sift", "brief", "keypoint", "photo"]
    drawn = []
    for split in ("train", "validation"):
        pairs = rows_of(RecordInfo.load(asked), split, [PATCH, PAIR])
        rows = rows_of(info, split, None)
        first, second = (describe_patches(names, pairs[patch]) for patch in (PATCH, PAIR))
        is_first, is_second = (
            np.stack([(rows[name] == one[name]).all(axis=1) for name in names], axis=1) for one in (first, second)
        )
        assert (is_first ^ is_second).all()
        drawn.append(is_second)
    sides = np.concatenate(drawn)
    assert (np.abs(sides.mean(axis=0) - 0.5) < 0.1).all()
    assert (
        (abs((sides[:, 0] == sides[:, 1]).mean() - 0.5) < 0.1) if across_views else (sides[:, 0] == sides[:, 1]).all()
    )


def test_what_is_drawn_of_pairs_depends_on_no_size_of_blocks():
    names, rng = ("a", "b", "c"), np.random.default_rng(1)
    first, second = ({name: rng.random((31, 2)) for name in names} for _ in range(2))
    whole = either(first, second, names, True, np.random.default_rng(5))
    drawn = np.random.default_rng(5)
    for start, end in ((0, 7), (7, 24), (24, 31)):
        part = either(*({n: v[start:end] for n, v in side.items()} for side in (first, second)), names, True, drawn)
        for name in names:
            np.testing.assert_array_equal(part[name], whole[name][start:end])


def test_what_is_asked_of_the_wrong_kind_of_records_is_refused(made, tmp_path):
    with pytest.raises(ValueError, match="no records of pairs .*--across-views"):
        describe(made.path, tmp_path / "more", descriptors=("brief",), across_views=True)
    with pytest.raises(ValueError, match="two patches: leave out --patches"):
        describe(pair_records(tmp_path / "pairs"), tmp_path / "more", descriptors=("brief",), patches=True)
