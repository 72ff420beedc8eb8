"""Further descriptors for records that hold patches."""

import numpy as np
import pytest

from xdesc_jax.data import open_source
from xdesc_jax.data.build import build
from xdesc_jax.data.describe import describe
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import KEYPOINT, PATCH
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.describe import describe_patches

pytest.importorskip("jax", reason="needs the features extra")


class Patches:
    """Random patches of three photos, with a descriptor of their own."""

    specs = {"mine": DescriptorSpec("mine", 3, normalized=False)}
    names = ["a", "b", "c"]
    has_pairs = False
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
    source = open_source(info.path, split, 100, columns, patches, shuffle=False, remainder="pad")
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
