"""Training across views: matches are of rows of two photos that show one point."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.support.aligned_stores import write_aligned
from xdesc_jax.config import LossConfig, ModelConfig
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.export.export import export
from xdesc_jax.train.translators.run import train
from xdesc_jax.translation.translator import Translator

SPECS = {name: DescriptorSpec(name, 16, hidden=(32,)) for name in ("a", "b")}
POINTS, VIEWS = 90, 14


def rows(point: np.ndarray, view: np.ndarray) -> dict[str, np.ndarray]:
    """Of what each point has for good, and of half as much again that all descriptors of one view have in common."""
    seen = np.concatenate([point, 1.5 * view], axis=1)
    return {n: unit_rows(seen @ np.random.default_rng(i).normal(size=(12, 16))) for i, n in enumerate(SPECS)}


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.random.default_rng([seed, i]).normal(size=(POINTS, 6)) for i in range(2))


@pytest.fixture(scope="module")
def across(tmp_path_factory):
    """Seven photos with a view each, and validation rows of one of them."""
    folder, files, photos = tmp_path_factory.mktemp("across"), {}, []
    xy = 10.0 * np.stack(np.meshgrid(np.arange(10), np.arange(9)), axis=-1).reshape(-1, 2)
    for number in range(VIEWS):
        files[f"{number}.png"] = {"photo": f"{number // 2}.jpg", "homography": np.eye(3).tolist()}
        photos.append((rows(drawn(number // 2)[0], drawn(100 + number)[1]), xy, {}))
    (folder / "views.json").write_text(json.dumps({"files": files}))
    stores = write_aligned(folder, SPECS, photos)
    return records(folder / "out", paired=stores, across=folder / "views.json", format="npy", validation_share=0.1).path


def test_encoders_learn_to_pass_over_what_one_view_alone_shows(across, toy_config, tmp_path):
    point, right = drawn(50)[0], {}
    one, other = (rows(point, drawn(150 + i)[1]) for i in range(2))
    for across_views in (False, True):
        loss = LossConfig(alpha=1.0, matching="contrastive", across_views=across_views)
        config = dataclasses.replace(toy_config, resident=True, loss=loss, epochs=12)
        run = train(config, across, tmp_path / str(across_views))
        export(run, tmp_path / f"{across_views}.safetensors", which="latest")
        translator = Translator.load(tmp_path / f"{across_views}.safetensors")
        alike = translator.embed(one["a"], "a") @ translator.embed(other["b"], "b").T
        right[across_views] = float(np.mean(alike.argmax(axis=1) == np.arange(POINTS)))
    assert right[True] > right[False] + 0.2


def test_across_views_is_refused_where_it_cannot_be(across, toy_records, toy_config, tmp_path):
    def refused(message, data=across, **fields):
        config = dataclasses.replace(toy_config, **{"resident": True, "loss": LossConfig(across_views=True)} | fields)
        with pytest.raises(ValueError, match=message):
            train(config, data, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    refused("loss.across_views is True, with inputs 'columns' and resident False", resident=False)
    refused("model.kind 'pair', which has no joint space", model=ModelConfig(kind="pair"))
    refused(r"records: loss.across_views is True, but these records do not say .* --across", data=toy_records)
    told = "expected a multiple of 8 where loss.across_views is True: rows come in twos, on 4 devices"
    refused(f"batch_size is 12, {told}", batch_size=12)
