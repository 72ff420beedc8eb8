"""Photos, weights and networks that `xdesc extract` refuses or leaves out, by an extractor that needs no torch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from tests.support.fake_extractor import DIES, FAILS, LACKS, LONG
from tests.support.spotted_photos import given, spots
from tests.support.textures import NAMES, read, texture
from xdesc_jax import cli
from xdesc_jax.features.extract import ExtractSettings, configuration_keys, extract
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.files.whole import read_json

pytestmark = pytest.mark.usefixtures("names")


def test_a_photo_smaller_than_the_network_takes_is_left_out_or_refused(photos, tmp_path, weights, caplog):
    Image.fromarray(texture(15, 40)).save(photos / "small.png")
    words = {"descriptors": ("fake",), "keypoints": "fake", "weights": weights[:1]}
    out = extract(photos, tmp_path / "out", **words)
    told = "small.png: the photo has 40 x 15 px, but 'fake' needs at least 16 px a side"
    assert told in caplog.text and told in read_json(out / "extract.json")["skipped"]["small.png"]
    assert sorted(read(out, "fake")) == sorted(NAMES)
    with pytest.raises(UnreadablePhoto, match=told):
        extract(photos, tmp_path / "strict", **words, strict=True)


def test_a_photo_that_no_one_can_read_is_left_out(photos, tmp_path, weights):
    (photos / "broken.png").write_bytes(b"no photo")
    out = extract(photos, tmp_path / "out", descriptors=("fake",), keypoints="fake", weights=weights[:1])
    assert list(read_json(out / "extract.json")["skipped"]) == ["broken.png"]


def test_cuda_is_demanded_before_any_work(photos, tmp_path, weights, calls):
    words = {"descriptors": ("fake",), "keypoints": "opencv", "weights": weights[:1]}
    with pytest.raises(ValueError, match=r"device 'cuda' was demanded, but torch .*; pass --device cpu"):
        extract(photos, tmp_path / "out", **words, device="cuda")
    assert calls() == [] and not list((tmp_path / "out").rglob("*.npz"))
    with pytest.raises(ValueError, match="device is 'gpu', expected one of auto, cpu, cuda"):
        extract(photos, tmp_path / "out", **words, device="gpu")


def test_weights_that_the_network_refuses_are_told_as_it_tells_them(photos, tmp_path, weights):
    np.savez(tmp_path / "fake.npz", factor=-1.0)
    with pytest.raises(ValueError, match=r"fake.npz: factor is -1.0, expected more than 0"):
        extract(photos, tmp_path / "out", descriptors=("fake",), keypoints="opencv", weights=weights[:1])


@pytest.mark.parametrize(
    ("first_pixel", "error", "message"),
    [
        (DIES, OSError, r"b.png \(121 x 97 px\): 'fake': the process of the networks ended with status 3"),
        (FAILS, OSError, r"b.png \(121 x 97 px\): 'fake': failed \(RuntimeError: not enough memory\)$"),
        (LACKS, ValueError, "b.png: 'fake' gave 1 rows for 2 keypoints"),
        (LONG, ValueError, "b.png: computing 'fake': row 0 has norm 2, but 'fake' expects unit-length floats"),
    ],
)
def test_what_goes_wrong_in_the_process_names_the_photo_and_keeps_finished_ones(
    tmp_path, weights, calls, first_pixel, error, message
):
    photos = spots(tmp_path / "photos", {"a.png": [(10, 9, 90)], "b.png": [(10, 9, 90)]})
    pixels = np.asarray(Image.open(photos / "b.png")).copy()
    good = pixels.copy()
    pixels[0, 0] = first_pixel
    Image.fromarray(pixels).save(photos / "b.png")
    points = given(tmp_path / "points.h5", [[20, 30], [40.5, 50]], photos=("a.png", "b.png"))
    words = {"descriptors": ("fake",), "keypoints": points, "weights": weights[:1]}
    with pytest.raises(error, match=message):
        extract(photos, tmp_path / "out", **words)
    done = len(calls())
    Image.fromarray(good).save(photos / "b.png")
    out = extract(photos, tmp_path / "out", **words)
    assert len(read(out, "fake")) == 2 and len(calls()) == done + 1


def test_an_error_of_the_process_is_one_line_at_the_command_line(photos, tmp_path, weights, capsys):
    words = ["extract", str(photos), str(tmp_path / "out"), "--keypoints", "fake", "--descriptors", "fake"]
    assert cli.main([*words, "--weights", weights[0], "--device", "cuda"]) == 2
    shown = capsys.readouterr().err
    assert "error: device 'cuda' was demanded" in shown and "Traceback" not in shown


def test_without_torch_or_kornia_the_extra_is_named_before_any_work(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia", None)
    message = r"'xfeat' is computed with torch and kornia, but .*kornia .* not installed; .*'xdesc-jax\[learned\]'"
    with pytest.raises(ValueError, match=message):
        extract(photos, tmp_path / "out", descriptors=("xfeat",), keypoints="opencv")


def test_a_missing_weight_file_is_told_with_the_way_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="install them with `xdesc weights install disk`, or give .* disk=FILE"):
        configuration_keys(ExtractSettings(("disk",), "opencv"))


@pytest.mark.parametrize("name", ["superpoint", "r2d2"])
def test_a_descriptor_of_files_alone_is_not_computed(photos, tmp_path, name):
    with pytest.raises(ValueError, match=f"'{name}' is registered without a function; its rows can only come from"):
        extract(photos, tmp_path / "out", descriptors=(name,), keypoints="opencv")
    with pytest.raises(FileNotFoundError, match=f"{name}: no such file; keypoints are 'colmap', 'opencv', a network's"):
        extract(photos, tmp_path / "out", descriptors=("brief",), keypoints=name)
