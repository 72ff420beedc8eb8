"""The ablations: what is trained, and how claims are judged. Trainings are put in by the tests."""

import numpy as np
import pytest

from tests.support.sequence_folder import write_sequences
from tests.support.stopped import Calls, Stopped
from xdesc_jax.command_line import ablations as command
from xdesc_jax.config import ModelConfig, TrainConfig
from xdesc_jax.data import open_source
from xdesc_jax.descriptors import get_spec
from xdesc_jax.evaluate.benchmarks import ablations
from xdesc_jax.evaluate.benchmarks.ablations import Claim
from xdesc_jax.evaluate.homography import Comparison
from xdesc_jax.files.fields import replaced
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

FOUR = ("brief", "sift", "sift-kornia05", "opencv-sift")
THREE = FOUR[1:]


def test_each_setting_is_a_training_and_serves_a_claim():
    known = ablations.settings(FOUR)
    configs = {name: replaced(TrainConfig(), changes) for name, changes in known.items()}
    assert len({(config.hash, ablations.records_of(name)) for name, config in configs.items()}) == len(known)
    assert configs["2 descriptors"].descriptors == FOUR[2:] and configs["4 descriptors"].descriptors == FOUR
    assert (configs["pair network"].model.kind, configs["pair network"].descriptors) == ("pair", FOUR[1:3])
    claims = ablations.claims(FOUR, list(known))
    assert {setting for claim in claims for setting, _ in claim.needs} == {"", *known}
    for claim in claims:
        for setting, comparison in claim.needs:
            held = configs[setting].descriptors if setting else FOUR
            assert {comparison.source, comparison.target} <= set(held)
    assert len(ablations.claims(FOUR, ["4 descriptors"])) == 2  # the naive ones


@pytest.mark.parametrize(
    ("least", "most", "mode"), [(2, 5, "holds"), (3.5, None, "does not"), (None, 2.9, "does not"), (3, 3, "holds")]
)
def test_a_claim_holds_where_the_difference_lies_within_its_limits(least, most, mode):
    one, other = ("x", Comparison("joint", "a", "b")), ("y", Comparison("joint", "a", "b"))
    row = Claim("so it is", "Figure 1", one, other, least, most).row({one: 40.0, other: 37.0})
    assert row.mode == mode and row.values["difference"] == 3 and row.values["holds"] == (mode == "holds")
    assert row.name == "so it is (x: a | b / y: a | b)"


def test_a_claim_of_one_figure_is_judged_by_it():
    one = ("", Comparison("naive", "a", "b"))
    row = Claim("nothing", "", one, None, None, 5).row({one: 6.0})
    assert (row.mode, row.values["difference"], row.values["of the other"]) == ("does not", 6.0, None)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A run whose trainings are exact for two alike; without matching loss, or with the linear, `sift` is mixed."""
    (tmp_path / "photos").mkdir()
    write_sequences(tmp_path / "scenes", ("v_roof",))
    (tmp_path / "photos/1.ppm").write_bytes(next((tmp_path / "scenes").rglob("1.ppm")).read_bytes())

    def trained(config, data, workdir):
        straight, zeros = np.eye(128, dtype=np.float32), np.zeros(128, np.float32)
        bad = config.loss.alpha == 0 or config.loss.variant == "linear"
        mixed = np.random.default_rng(0).permutation(straight) if bad else straight
        networks = {f"encoder/{n}": [(mixed if n == "sift" else straight, zeros)] for n in THREE}
        networks |= {f"decoder/{n}": [(straight, zeros)] for n in THREE}
        bundle = Bundle("encoder_decoder", {n: get_spec(n) for n in THREE}, 128, networks)
        workdir.mkdir(parents=True)
        return bundle.save(workdir / "model.safetensors")

    monkeypatch.setattr(command, "trained", trained)
    monkeypatch.setattr(command.Photos, "records", lambda *_: tmp_path)
    chosen = ("4 descriptors", "no matching loss", "linear loss")
    asked = {"data": tmp_path / "photos", "scenes": tmp_path / "scenes", "out": tmp_path / "out", "settings": chosen}
    return asked | {"descriptors": FOUR, "max_keypoints": 60}


def test_claims_are_judged_by_what_trainings_reach_and_a_stopped_run_goes_on(judged, monkeypatch):
    calls = Calls(monkeypatch, command, "trained")
    calls.until = 2
    with pytest.raises(Stopped):
        command.run(**judged)
    calls.done, calls.until = 0, None
    result = command.run(**judged)
    assert calls.done == 1
    found = {row.detail["paper"]: row for row in result.rows}
    assert len(result.rows) == 5 and not result.official
    assert found["Figure 'Naive matching'"].mode == "holds"
    joint = found["Figure 't-SNE visualization of the joint space'"]
    assert joint.mode == "holds" and joint.values["difference"] > 50
    assert found["Figure 'Matching loss'"].mode == "holds"
    linear = found["Figure 'Loss ablation'"]
    assert linear.mode == "does not" and linear.values["difference"] > 50
    assert command.run(**judged) == result and calls.done == 1


def test_what_cannot_be_judged_is_told(judged):
    with pytest.raises(ValueError, match="no setting is called 'none'"):
        command.run(**{**judged, "settings": ("none",)})
    with pytest.raises(ValueError, match="'across views' needs descriptors that are computed from patches"):
        command.run(**{**judged, "settings": ("across views",)})
    with pytest.raises(ValueError, match="expected four"):
        command.run(**{**judged, "descriptors": FOUR[:3]})


def test_photos_become_records_and_a_training_a_model(tmp_path):
    photos = write_sequences(tmp_path / "photos", ("v_roof",))
    data = command.Photos(photos, ("brief", "sift"), "opencv", 60, 40, (), 1).records(tmp_path, "photos")
    small = ModelConfig(hidden_handcrafted=(8,), hidden_learned=(8,), embedding_width=8)
    config = TrainConfig(epochs=1, batch_size=64, validation_rows=32, model=small)
    translator = Translator.load(command.trained(config, data, tmp_path / "run"))
    assert list(translator.names) == ["brief", "sift"] and translator.space_id is not None


def test_rows_of_two_views_are_of_the_same_points_whether_of_one_patch_or_across(tmp_path):
    photos = command.Photos(
        write_sequences(tmp_path / "photos", ("v_roof",)), ("brief", "sift"), "opencv", 200, 40, (), 1
    )
    found = {}
    for kind in ("one view", "across views"):
        source = open_source(photos.records(tmp_path, kind), "train", 40, shuffle=False, remainder="pad")
        found[kind] = next(iter(source.epoch(0)))
    one, across = found["one view"], found["across views"]
    assert one["mask"].sum() == across["mask"].sum() >= 20
    np.testing.assert_array_equal(one["brief"], across["brief"])  # the side is drawn for the first descriptor alike
    other = (one["sift"] != across["sift"]).any(axis=1)[one["mask"]]
    assert 0.2 < other.mean() < 0.8
