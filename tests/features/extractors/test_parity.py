"""The networks with their authors' weights, against kornia's own pipeline.

Skipped without torch, kornia and the weights: pip install 'xdesc-jax[learned]', `xdesc weights install` of all names
into a folder XDESC_DATA, and XDESC_TEST_WEIGHTS naming that folder.
The oracle runs torch in this process, so nothing here may import pycolmap.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.authors_weights import FOLDER, authors_weights, lacking
from tests.support.kornia_pipeline import pipeline
from tests.support.root import ROOT
from tests.support.textures import read
from xdesc_jax import descriptors
from xdesc_jax.descriptors import DescriptorSpec, get_spec, register
from xdesc_jax.features.extract import extract
from xdesc_jax.features.extractors.process import BORDER_PX, Extractors
from xdesc_jax.features.store import ImageFeatures, StoreWriter

NAMES = ("aliked-n16rot", "aliked-n16", "aliked-n32", "aliked-t16", "disk", "xfeat")
LACKING = lacking(*NAMES)
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"lacking {', '.join(LACKING)}")
SIZES = [(160, 224), (149, 203), (97, 64)]  # height and width; strides are 8 to 32
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def photos():
    """Crops of photos that come with scikit-image."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    found = []
    for name, (height, width) in zip(("coffee.png", "astronaut.png", "chelsea.png"), SIZES, strict=True):
        photo = np.asarray(Image.open(folder / name).convert("RGB"))
        found.append(photo[40 : 40 + height, 60 : 60 + width])
    return found


@pytest.fixture(scope="module")
def extractors():
    with Extractors(NAMES, {name: authors_weights(name) for name in NAMES}, "cpu") as extractors:
        yield extractors


@pytest.fixture(scope="module")
def detected(photos, extractors):
    """Descriptor -> what it finds in each of the photos."""
    return {name: [extractors.detect(name, photo, "photo") for photo in photos] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_keypoints_scores_and_rows_are_kornias(photos, detected, name):
    kornias = pipeline(name, authors_weights(name))
    for photo, found in zip(photos, detected[name], strict=True):
        xy, scores, rows = kornias(photo)
        assert found.rows.dtype == np.float32 and found.rows.shape == (len(xy), get_spec(name).width)
        np.testing.assert_allclose(found.xy, xy, atol=TOLERANCE)
        np.testing.assert_allclose(found.scores, scores, atol=TOLERANCE, rtol=TOLERANCE)
        np.testing.assert_allclose(found.rows, rows, atol=TOLERANCE)
    assert min(len(found.xy) for found in detected[name][:2]) > 5


@pytest.mark.parametrize("name", NAMES)
def test_rows_at_the_keypoints_that_a_network_found_are_those_it_gave_them(photos, extractors, detected, name):
    for photo, found in zip(photos[:2], detected[name], strict=False):
        rows, valid = extractors.describe(name, photo, found.xy, "photo")
        assert valid.mean() > 0.8
        np.testing.assert_allclose(rows[valid], found.rows[valid], atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_rows_at_given_keypoints_are_of_their_places_in_any_order(photos, extractors, name):
    photo, rng = photos[1], np.random.default_rng(1)
    xy = rng.uniform([20, 20], [180, 130], (40, 2)).astype(np.float32)
    order = rng.permutation(40)
    both, valid = extractors.describe(name, photo, np.concatenate([xy, xy[order], xy + np.float32(0.25)]), "photo")
    rows, again, near = both.reshape(3, 40, -1)
    assert valid.all()
    np.testing.assert_allclose(again, rows[order], atol=1e-5)
    assert np.median((rows * near).sum(axis=1)) > 0.9 > np.median((rows * rows[::-1]).sum(axis=1)) + 0.2


@pytest.mark.parametrize("name", ["aliked-n16rot", "disk", "xfeat"])
def test_keypoints_of_a_photo_that_was_moved_are_moved_with_it(extractors, name):
    """The homography of a crop is a shift by whole pixels, so positions must agree to a fraction of one."""
    import skimage

    photo = np.asarray(Image.open(Path(skimage.__file__).parent / "data" / "coffee.png"))[:288, :352]
    shift = np.array([64, 32])  # whole strides, for a network's grid to lie on the same pixels
    cropped = np.ascontiguousarray(photo[shift[1] : shift[1] + 224, shift[0] : shift[0] + 256])
    moved = extractors.detect(name, photo, "photo").xy - shift
    found = extractors.detect(name, cropped, "cropped").xy
    inside = found[((found > 40) & (found < np.array([256, 224]) - 40)).all(axis=1)]
    distance = np.linalg.norm(inside[:, None] - moved[None], axis=2).min(axis=1)
    assert len(inside) > 5 and np.median(distance) < 0.25 and (distance < 2).mean() > 0.6


def test_disk_reads_the_pixel_whose_centre_the_position_is(photos, extractors, detected):
    """DISK keeps a row for every pixel: half a pixel off on either side, rows are alike; two pixels off less so."""
    photo, (xy, _, rows) = photos[2], detected["disk"][2]
    assert (xy == np.rint(xy)).all() and xy.min() >= BORDER_PX and (xy <= np.array([63, 96]) - BORDER_PX).all()
    for step in np.array([[0.5, 0], [0, -0.5]]):
        places = np.concatenate([xy + step, xy - step, xy + 4 * step]).astype(np.float32)
        around, inside = extractors.describe("disk", photo, places, "photo")
        every = inside.reshape(3, -1).all(axis=0)
        before, after, far = ((part * rows).sum(axis=1)[every] for part in around.reshape(3, *rows.shape))
        alike = np.minimum(before, after)
        assert every.sum() > 20 and np.median(alike) > 0.9 and (alike > far).mean() > 0.95


def test_files_hold_what_the_network_found(photos, tmp_path, detected, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(FOLDER))
    (tmp_path / "photos").mkdir()
    Image.fromarray(photos[1]).save(tmp_path / "photos" / "a.png")
    out = extract(
        tmp_path / "photos", tmp_path / "out", descriptors=("xfeat", "aliked-t16"), keypoints="xfeat", max_keypoints=50
    )
    xy, scores, rows = detected["xfeat"][1]
    kept = np.sort(np.argsort(-scores)[:50])
    found, other = read(out, "xfeat")["a.png"], read(out, "aliked-t16")["a.png"]
    np.testing.assert_allclose(found.keypoints, xy[kept], atol=1e-5)
    np.testing.assert_allclose(found.descriptors[found.valid], rows[kept][found.valid], atol=1e-5)
    assert other.descriptors.shape == (50, 64) and found.image_size == (203, 149) and found.scales is None


def test_rows_of_several_networks_at_the_keypoints_of_a_file(photos, tmp_path, extractors, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(FOLDER))
    (tmp_path / "photos").mkdir()
    Image.fromarray(photos[0]).save(tmp_path / "photos" / "a.png")
    xy = np.array([[100.25, 99.5], [1, 50], [30, 140]], np.float32)
    with StoreWriter(tmp_path / "points.h5", get_spec("xfeat")) as writer:
        writer.write("a.png", ImageFeatures(xy, np.zeros((3, 64), np.float32), np.ones(3, bool), (224, 160)))
    asked = ("xfeat", "disk")
    out = extract(tmp_path / "photos", tmp_path / "out", descriptors=asked, keypoints=str(tmp_path / "points.h5"))
    for name in asked:
        found = read(out, name)["a.png"]
        np.testing.assert_array_equal(found.valid, [True, False, True])
        expected, _ = extractors.describe(name, photos[0], xy, "photo")
        np.testing.assert_allclose(found.descriptors, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("aliked-n32", "aliked-n16", r"'desc_head.agg_weights' has shape \(16, 128, 128\), expected \(32, "),
        ("disk", "xfeat", "not the expected network; missing 'unet"),
        ("xfeat", "disk", "not the expected network; missing 'skip1.1.weight'"),
    ],
)
def test_weights_of_another_architecture_are_refused(photos, name, other, message):
    file = authors_weights(other)
    with Extractors([name], {name: file}, "cpu") as extractors, pytest.raises(ValueError, match=f"{other}.*{message}"):
        extractors.detect(name, photos[0], "photo")


@pytest.mark.parametrize("name", NAMES)
def test_a_photo_of_one_colour_and_one_of_the_least_size_are_taken(extractors, name):
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    for photo in (np.full((40, 50, 3), 128, np.uint8), noise):
        found = extractors.detect(name, photo, "photo")
        assert len(found.xy) == len(found.rows) and ((found.xy >= 0) & (found.xy < photo.shape[1::-1])).all()
        rows, valid = extractors.describe(name, photo, np.array([[15.5, 16], [0, 0]], np.float32), "photo")
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0], atol=1e-5)
    with pytest.raises(ValueError, match=f"tiny.png: the photo has 50 x 31 px, but '{name}' needs at least 32"):
        extractors.detect(name, np.zeros((31, 50, 3), np.uint8), "tiny.png")


def test_the_example_of_how_to_add_a_network_works(photos, tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (tmp_path / "example.py").write_text(re.search(r'```python\n("""Example:.*?)```', text, re.DOTALL)[1])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    register(DescriptorSpec("example", 3), "example:Example", source="network")
    rng = np.random.default_rng(0)
    weights = {"weight": rng.standard_normal((3, 3, 5, 5)).astype(np.float32), "bias": np.zeros(3, np.float32)}
    np.savez(tmp_path / "weights.npz", **weights)
    with Extractors(["example"], {"example": tmp_path / "weights.npz"}, "cpu") as extractors:
        found = extractors.detect("example", photos[2], "photo")
        rows, valid = extractors.describe("example", photos[2], found.xy, "photo")
    assert len(found.xy) > 10 and valid.mean() > 0.5
    np.testing.assert_allclose(rows[valid], found.rows[valid], atol=TOLERANCE)
