"""`xdesc match --matcher lightglue` with the authors' weights, against kornia's own call.

Skipped without torch, kornia and the weights (see `tests.support.authors_weights`). The oracle runs torch in this
process, so nothing here may import pycolmap.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.authors_weights import FOLDER, authors_weights, lacking
from xdesc_jax import cli
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.features.extractors.process import Extractors
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.features.weights import read_arrays
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

MATCHERS = {"aliked-n16rot": "lightglue-aliked", "disk": "lightglue-disk"}
LACKING = lacking(*MATCHERS, *MATCHERS.values())
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"lacking {', '.join(LACKING)}")
# Crops of one photo: left, top, width and height.
CROPS = {"a.png": (60, 40, 224, 160), "sub/b.png": (90, 55, 203, 171), "c.png": (75, 30, 160, 192)}
KEYPOINTS = 150
TOLERANCE = 1e-4  # of scores, of rows that are the same to the last bit: nine layers make 2e-4 of others


@pytest.fixture(scope="module", autouse=True)
def installed():
    """The weights are installed. One core: threads that wait for each other waste much where tests share cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDESC_DATA", str(FOLDER))
        patch.setattr(os, "sched_getaffinity", lambda pid: {0})
        yield


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A feature file for each descriptor, at the keypoints that DISK finds strongest."""
    import skimage

    whole = Image.open(Path(skimage.__file__).parent / "data" / "coffee.png").convert("RGB")
    folder, files = tmp_path_factory.mktemp("features"), {}
    with Extractors(list(MATCHERS), {name: authors_weights(name) for name in MATCHERS}, "cpu") as extractors:
        photos = {}
        for name, (x, y, width, height) in CROPS.items():
            photos[name] = np.asarray(whole.crop((x, y, x + width, y + height)))
        found = {name: extractors.detect("disk", photo, name) for name, photo in photos.items()}
        for descriptor in MATCHERS:
            files[descriptor] = folder / f"{descriptor}.h5"
            with StoreWriter(files[descriptor], get_spec(descriptor)) as writer:
                for name, photo in photos.items():
                    xy = found[name].xy[np.argsort(-found[name].scores)[:KEYPOINTS]]
                    rows, valid = extractors.describe(descriptor, photo, xy, name)
                    assert valid.all()
                    writer.write(name, ImageFeatures(xy, rows, valid, photo.shape[1::-1]))
    return files


@pytest.fixture(scope="module")
def kornias():
    """Kornia's own matcher of a descriptor, as a function of two photos' features; it reads files where it would fetch
    them."""
    import kornia.feature.lightglue as module
    import torch
    from kornia.feature import LightGlueMatcher, laf_from_center_scale_ori

    torch.set_num_threads(1)
    made = {}
    for descriptor, name in MATCHERS.items():
        arrays = {key: torch.from_numpy(array) for key, array in read_arrays(authors_weights(name)).items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "load_state_dict_from_url", lambda *a, arrays=arrays, **k: arrays)
            made[descriptor] = LightGlueMatcher(descriptor.split("-")[0])
        assert not made[descriptor].training

    def match(descriptor, first, second):
        rows = [torch.from_numpy(photo.descriptors) for photo in (first, second)]
        lafs = [laf_from_center_scale_ori(torch.from_numpy(p.keypoints)[None]) for p in (first, second)]
        with torch.inference_mode():
            scores, indices = made[descriptor](*rows, *lafs, first.image_size[::-1], second.image_size[::-1])
        return indices.numpy(), scores.numpy()[:, 0]

    return match


def run(*words):
    assert cli.main(["match", *map(str, words), "--pairs", "exhaustive", "--matcher", "lightglue"]) == 0


def check(path, store, descriptor, kornias, rows=unit_rows):
    """All matches of a file, and their scores, are kornia's of what `rows` makes of the stored ones; how many there
    are."""

    def seen(name):
        photo = reader.read(name)
        return dataclasses.replace(photo, descriptors=rows(photo.descriptors))

    counts = []
    with MatchFile(path) as file, FeatureStore(store) as reader:
        for a, b in file.pairs():
            indices, scores = file.read(a, b)
            expected, expected_scores = kornias(descriptor, seen(a), seen(b))
            order = np.argsort(expected[:, 0])
            assert indices.tolist() == expected[order].tolist()
            np.testing.assert_allclose(scores, expected_scores[order], atol=TOLERANCE)
            counts.append(len(indices))
    assert len(counts) == 3
    return counts


@pytest.mark.parametrize("descriptor", MATCHERS)
def test_native_rows_match_as_in_kornia(features, kornias, tmp_path, descriptor):
    run(features[descriptor], tmp_path / "m.h5")
    assert min(check(tmp_path / "m.h5", features[descriptor], descriptor, kornias)) > 30
    with MatchFile(tmp_path / "m.h5") as file, FeatureStore(features[descriptor]) as reader:
        for a, b in file.pairs():
            (i, j), shift = file.indices(a, b).T, np.subtract(CROPS[b][:2], CROPS[a][:2])
            off = reader.read(a).keypoints[i] - reader.read(b).keypoints[j] - shift
            assert (np.abs(off).max(axis=1) < 1.5).mean() > 0.9  # crops are shifted by whole pixels


def test_translated_rows_match_as_in_kornia(features, kornias, tmp_path):
    """Rows whose values a model takes out of their order, given back in it, are the native ones."""
    order = np.random.default_rng(0).permutation(128)
    turned = dataclasses.replace(get_spec("aliked-n16rot"), name="turned")
    with FeatureStore(features["aliked-n16rot"]) as reader, StoreWriter(tmp_path / "turned.h5", turned) as writer:
        for name in reader.names:
            photo = reader.read(name)
            writer.write(name, dataclasses.replace(photo, descriptors=photo.descriptors[:, order]))
    eye, none = np.eye(128, dtype=np.float32), np.zeros(128, np.float32)
    networks = {"encoder/turned": [(eye[order], none)], "decoder/aliked-n16rot": [(eye, none)]}
    specs = {"turned": turned, "aliked-n16rot": get_spec("aliked-n16rot")}
    model = Bundle("encoder_decoder", specs, 128, networks, frame="image", harmonics=2).save(tmp_path / "m.safetensors")
    more = ["--mode", "directional", "--target", "aliked-n16rot", "--model", model]
    run(tmp_path / "turned.h5", tmp_path / "m.h5", *more)
    back = functools.partial(Translator.load(model).translate, source="turned", target="aliked-n16rot")
    stored = tmp_path / "turned.h5"
    with FeatureStore(stored) as turned_rows, FeatureStore(features["aliked-n16rot"]) as reader:
        for name in reader.names:
            np.testing.assert_allclose(
                back(turned_rows.read(name).descriptors), reader.read(name).descriptors, atol=1e-6
            )
    assert min(check(tmp_path / "m.h5", stored, "aliked-n16rot", kornias, back)) > 30
    (kind,) = json.loads((tmp_path / "m.h5.json").read_text())["by_descriptors"]
    assert (kind["first"], kind["in"]) == ("turned", "aliked-n16rot")


def test_weights_of_another_network_are_refused(features, tmp_path, capsys):
    words = ["match", features["aliked-n16rot"], tmp_path / "m.h5", "--pairs", "exhaustive", "--matcher", "lightglue"]
    assert cli.main([*map(str, words), f"--weights=lightglue-aliked={authors_weights('disk')}"]) == 2
    assert "disk.safetensors: not the expected network; missing " in " ".join(capsys.readouterr().err.split())
