"""New descriptors in the joint space of a finished model, whose members and name stay."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.support.toy_records import TOY
from xdesc_jax import cli
from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.descriptors import DescriptorSpec, from_stored, unit_rows
from xdesc_jax.export.export import to_bundle
from xdesc_jax.files.whole import read_json
from xdesc_jax.train.translators import run as stage
from xdesc_jax.train.translators.frozen import with_added
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model
from xdesc_jax.translation.bundle import Bundle, ParitySample, load
from xdesc_jax.translation.translator import Translator

MEMBERS = ("toy-bits", "toy-plain", "elsewhere")
NEW = "toy-unit"
RANK1 = {"toy-bits->elsewhere": 0.99, "toy-bits->toy-plain": 0.001, "elsewhere->toy-plain": 0.7}
RATIOS = {"toy-bits->toy-plain": 0.9, "toy-plain->toy-bits": 0.8}
BEFORE = {"steps": 3, "validation": {"rank1": RANK1}}


def layers(rng, *widths):
    return [
        (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
        for a, b in zip(widths, widths[1:], strict=False)
    ]


@pytest.fixture(scope="module")
def model(straight, tmp_path_factory) -> Path:
    """Two of three members of a trained model in float16, and one that the records lack."""
    trained, rng = to_bundle(load_model(straight)), np.random.default_rng(0)
    specs = {name: trained.specs[name] for name in MEMBERS[:2]} | {"elsewhere": DescriptorSpec("elsewhere", 7)}
    networks = {n: x for n, x in trained.networks.items() if n.split("/")[1] in specs}
    networks |= {"encoder/elsewhere": layers(rng, 7, 5, 8), "decoder/elsewhere": layers(rng, 8, 5, 7)}
    rows = {"elsewhere": unit_rows(rng.normal(size=(5, 7)))}
    bundle = Bundle("encoder_decoder", specs, 8, networks, sample=ParitySample(rows), provenance=BEFORE, ratios=RATIOS)
    path = bundle.save(tmp_path_factory.mktemp("model") / "model.safetensors")
    with safe_open(path, "numpy") as file:
        header = file.metadata()
    halves = {n: x.astype(np.float16) if x.dtype == np.float32 else x for n, x in load_file(path).items()}
    save_file(halves, path, metadata=header)
    return path


@pytest.fixture(scope="module")
def narrow(tmp_path_factory) -> Path:
    """A model of what is added, with fewer hidden units than the configuration's."""
    rng = np.random.default_rng(0)
    networks = {f"encoder/{NEW}": layers(rng, 12, 5, 8), f"decoder/{NEW}": layers(rng, 8, 5, 12)}
    bundle = Bundle("encoder_decoder", {NEW: TOY[NEW]}, 8, networks)
    return bundle.save(tmp_path_factory.mktemp("narrow") / "model.safetensors")


@pytest.fixture(scope="module")
def config(toy_config) -> TrainConfig:
    return dataclasses.replace(toy_config, epochs=30, checkpoint_every=50, loss=LossConfig(beta=0.2))


@pytest.fixture(scope="module")
def grown(model, config, toy_records, tmp_path_factory) -> Path:
    """The run that adds to the model; do not write into it."""
    run = tmp_path_factory.mktemp("grown") / "run"
    return train(config, toy_records, run, init=model, freeze="all", add=(NEW,))


@pytest.fixture(scope="module")
def exported(grown, tmp_path_factory) -> Path:
    return to_bundle(load_model(grown)).save(tmp_path_factory.mktemp("exported") / "model.safetensors")


def test_frozen_members_are_the_same_bit_for_bit(model, exported):
    before, after = load_file(model), load_file(exported)
    held = [name for name in before if name.split("/")[0] in ("encoder", "decoder")]
    assert {name.split("/")[1] for name in held} == set(MEMBERS)
    for name in held:
        np.testing.assert_array_equal(after[name], before[name].astype(np.float32))
    assert set(load(exported).specs) == {*MEMBERS, NEW}


def test_the_space_keeps_its_name_and_embeddings_their_values(model, exported):
    before, after = Translator.load(model), Translator.load(exported)
    assert after.embedding_spec == before.embedding_spec
    rows = from_stored(after.bundle.sample.inputs["toy-plain"], after.specs["toy-plain"])
    np.testing.assert_array_equal(after.embed(rows, "toy-plain"), before.embed(rows, "toy-plain"))
    assert load(exported).provenance["frozen"]["provenance"] == BEFORE


def test_members_that_took_no_part_keep_their_figures_and_place_in_the_order(grown, exported):
    translator, last = Translator.load(exported), read_json(grown / "validation.json")[-1]
    assert set(translator.order()) == {*MEMBERS, NEW}
    found = translator.bundle.provenance["validation"]["rank1"]
    assert found == RANK1 | last["rank1"] and found["toy-bits->toy-plain"] > 0.001


def test_the_new_member_learns_as_if_trained_with_the_others(grown, straight):
    first, *_, last = read_json(grown / "validation.json")
    together = read_json(straight / "validation.json")[-1]
    for pair in (f"{NEW}->toy-plain", f"{NEW}->toy-bits", f"toy-plain->{NEW}", f"{NEW}->{NEW}"):
        assert last["translation_error"][pair] < 0.8 * first["translation_error"][pair], pair
        assert last["translation_error"][pair] < 1.1 * together["translation_error"][pair], pair
    for pair in (f"toy-bits|{NEW}", f"toy-plain|{NEW}"):
        assert last["joint_rank1"][pair] > 10 / 128  # ten times chance
    assert last["translation_error"]["toy-plain->toy-bits"] == first["translation_error"]["toy-plain->toy-bits"]


def test_the_whole_model_translates_and_checks_itself(exported):
    translator = Translator.load(exported)
    translator.self_check()
    rows = translator.bundle.sample.inputs
    assert translator.translate(from_stored(rows[NEW], translator.specs[NEW]), NEW, "elsewhere").shape == (32, 7)
    assert translator.translate(rows["elsewhere"], "elsewhere", NEW).shape == (5, 12)


def test_an_interrupted_addition_ends_as_an_uninterrupted_one(grown, model, config, toy_records, tmp_path):
    run = Path(shutil.copytree(grown, tmp_path / "run"))
    latest = sorted((run / "checkpoints").iterdir())[-1]
    shutil.rmtree(latest)
    train(config, toy_records, run, init=model, freeze="all", add=(NEW,))
    assert latest.exists()
    found, expected = (jax.tree.leaves(load_model(r, "latest").networks) for r in (run, grown))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_added_starts_from_another_model_that_holds_it(grown, exported, model, config, toy_records, tmp_path):
    """At a rate of next to nothing it is as good as there; the members stay those of --init."""
    slow = dataclasses.replace(config, epochs=1, optimizer=OptimizerConfig(1e-7))
    runs = {"fresh": {}, "started": {"start": exported}}
    for name, given in runs.items():
        train(slow, toy_records, tmp_path / name, init=model, freeze="all", add=(NEW,), **given)
    fresh, started, whole = (
        read_json(run / "validation.json")[-1]["translation_error"]
        for run in (tmp_path / "fresh", tmp_path / "started", grown)
    )
    for pair in (f"{NEW}->toy-plain", f"toy-plain->{NEW}", f"{NEW}->{NEW}"):
        assert started[pair] == pytest.approx(whole[pair], rel=0.15) and started[pair] < 0.9 * fresh[pair], pair
    assert to_bundle(load_model(tmp_path / "started")).space_id == load(model).space_id
    with pytest.raises(ValueError, match="other settings"):
        train(slow, toy_records, tmp_path / "started", init=model, freeze="all", add=(NEW,))


def test_a_member_is_trained_anew_in_the_space_that_the_others_hold(grown, exported, config, toy_records, tmp_path):
    """From its own networks at a rate of next to nothing it stays as good as it was; from fresh ones it does not."""
    slow = dataclasses.replace(config, epochs=1, optimizer=OptimizerConfig(1e-7))
    found = {}
    for name, given in {"fresh": {}, "started": {"start": exported}}.items():
        train(slow, toy_records, tmp_path / name, init=exported, freeze="all", retrain=(NEW,), **given)
        found[name] = read_json(tmp_path / name / "validation.json")[-1]["translation_error"]
    whole = read_json(grown / "validation.json")[-1]["translation_error"]
    for pair in (f"{NEW}->toy-plain", f"toy-plain->{NEW}", f"{NEW}->{NEW}"):
        assert found["started"][pair] == pytest.approx(whole[pair], rel=0.15), pair
        assert found["started"][pair] < 0.9 * found["fresh"][pair], pair
    before, after = load(exported), to_bundle(load_model(tmp_path / "fresh"))
    assert after.space_id == before.space_id and set(after.specs) == set(before.specs)
    Translator(after).self_check()
    for name, layers in before.networks.items():
        pairs = zip(layers, after.networks[name], strict=True)
        same = all(np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True))
        assert same == (name.split("/")[1] != NEW), name


@pytest.mark.parametrize("variant", ["quadratic", "linear", "autoencoder"])
def test_decoders_of_members_learn_on_while_the_space_stays(exported, config, toy_records, tmp_path, variant):
    once = dataclasses.replace(config, epochs=3, loss=LossConfig(variant))
    run = train(once, toy_records, tmp_path / "run", init=exported, freeze="all", decoders=("toy-plain",))
    before, after = load(exported), to_bundle(load_model(run))
    assert after.space_id == before.space_id and set(after.specs) == set(before.specs)
    Translator(after).self_check()
    for name, layers in before.networks.items():
        pairs = zip(layers, after.networks[name], strict=True)
        same = all(np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True))
        assert same == (name != "decoder/toy-plain"), name
    assert before.ratios == RATIOS and after.ratios == {"toy-plain->toy-bits": 0.8}
    measured = after.provenance["validation"]["rank1"]  # of 'elsewhere', which the records lack, with decoders as now
    assert measured["toy-bits->elsewhere"] == 0.99 and "elsewhere->toy-plain" not in measured


def test_decoders_learn_from_where_they_are(exported, config, toy_records, tmp_path):
    """At a rate of next to nothing translations stay as good as they were; beside them, a member is trained anew."""
    slow = dataclasses.replace(config, epochs=1, optimizer=OptimizerConfig(1e-7))
    train(slow, toy_records, tmp_path / "as-it-is", init=exported, freeze="all", decoders=("toy-plain",))
    given = {"retrain": (NEW,), "decoders": ("toy-plain",)}
    train(slow, toy_records, tmp_path / "both", init=exported, freeze="all", **given)
    train(slow, toy_records, tmp_path / "begun", init=exported, freeze="all", start=exported, **given)
    kept, both, begun = (
        read_json(tmp_path / name / "validation.json")[-1]["translation_error"]
        for name in ("as-it-is", "both", "begun")
    )
    for pair in kept:
        assert begun[pair] == pytest.approx(kept[pair], rel=0.15), pair
    assert both["toy-bits->toy-plain"] == pytest.approx(kept["toy-bits->toy-plain"], rel=0.15)
    assert kept[f"{NEW}->toy-plain"] < 0.9 * both[f"{NEW}->toy-plain"]


def test_a_resident_set_passes_over_rows_that_nothing_learns_from(model, config, toy_records, tmp_path, monkeypatch):
    records = Path(shutil.copytree(toy_records, tmp_path / "records"))
    rows = np.lib.format.open_memmap(records / f"train.{NEW}.npy", "r+")
    rows[: len(rows) // 3] = 0
    del rows
    whole = RecordInfo.load(records).counts["train"]
    left, told = whole - whole // 3, []
    monkeypatch.setattr(stage.console, "settings", lambda _, settings: told.append(settings["data"]))
    once = dataclasses.replace(config, epochs=1, batch_size=16, resident=True)
    for freeze, trained in {"all": left, "none": whole}.items():  # without freeze the members learn, too
        run = train(once, records, tmp_path / freeze, init=model, freeze=freeze, add=(NEW,))
        assert read_json(run / "validation.json")[-1]["step"] == trained // 16
    assert f"({left} rows of {whole} to train on, " in told[0] and f"({whole} rows to train on, " in told[1]


def test_without_freeze_the_space_has_another_name(grown, model, config, toy_records, tmp_path):
    once = dataclasses.replace(config, epochs=1)
    with pytest.raises(ValueError, match=r"epochs: 30 -> 1; freeze: all -> none"):
        train(once, toy_records, grown, init=model, add=(NEW,))
    run = train(once, toy_records, tmp_path / "run", init=model, add=(NEW,))
    bundle = to_bundle(load_model(run))
    assert set(bundle.specs) == {"toy-bits", "toy-plain", NEW}
    assert bundle.space_id != load(model).space_id


def test_members_may_have_other_hidden_widths_than_the_configuration(model, config, toy_records, tmp_path):
    bundle, rng = load(model), np.random.default_rng(0)
    narrow = {"encoder/toy-plain": layers(rng, 9, 5, 8), "decoder/toy-plain": layers(rng, 8, 5, 9)}
    other = dataclasses.replace(bundle, networks={**bundle.networks, **narrow}, space_id=None, statistics={})
    init, once = other.save(tmp_path / "narrow.safetensors"), dataclasses.replace(config, epochs=1)
    with pytest.raises(ValueError, match="encoder/toy-plain has layers"):
        train(once, toy_records, tmp_path / "joint", init=init, add=(NEW,))
    run = train(once, toy_records, tmp_path / "run", init=init, freeze="all", add=(NEW,))
    grown = to_bundle(load_model(run))
    assert grown.space_id == other.space_id and NEW in grown.specs
    Translator(grown).self_check()


def test_another_model_file_in_the_run_directory_is_refused(grown, exported, tmp_path):
    run = Path(shutil.copytree(grown, tmp_path / "run"))
    shutil.copyfile(exported, run / "frozen.safetensors")
    with pytest.raises(ValueError, match=r"frozen.safetensors: has content hash \w+, expected"):
        load_model(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"freeze": "encoders"}, "--freeze is 'encoders', expected 'all' or 'none'"),
        (
            {"decoders": ("toy-plain",), "freeze": "none"},
            "--decoders toy-plain: is for members of --init with --freeze",
        ),
        ({"decoders": ("toy-plain",), "add": (), "init": None}, "--decoders toy-plain: is for members of --init with"),
        (
            {"decoders": ("elsewhere",)},
            r"--decoders: \['elsewhere'\] are no members that take part",
        ),
        ({"decoders": ("toy-plain", "toy-plain")}, "--decoders toy-plain toy-plain: names a descriptor twice"),
        (
            {"decoders": ("toy-plain",), "add": (), "start": "model"},
            "--start is for descriptors that --freeze all --add or --retrain names",
        ),
        ({"add": ()}, "leaves nothing to train"),
        ({"init": None}, "given with --init"),
        ({"init": None, "add": ()}, "leaves nothing to train"),
        ({"add": (NEW, NEW)}, "twice"),
        ({"add": ("toy-plain",)}, r"already holds \['toy-plain'\]"),
        ({"add": ("sift",)}, r"the records lack \['sift'\]"),
        ({"config": {"descriptors": ("sift",)}}, r"the model lacks \['sift'\]"),
        ({"config": {"model": ModelConfig(embedding_width=9)}}, "encoder/toy-bits has layers"),
        ({"start": "narrow"}, r"--start: encoder/toy-unit has layers \[\(12, 5\), \(5, 8\)\], the configuration wants"),
        (
            {"start": "model"},
            r"--start: the model holds \['elsewhere', 'toy-bits', 'toy-plain'\], none of \['toy-unit'\]",
        ),
        ({"start": "model", "freeze": "none"}, "--start is for descriptors that --freeze all --add or --retrain names"),
        (
            {"add": (), "retrain": ("toy-plain",), "freeze": "none"},
            "--retrain toy-plain: is for members of --init with",
        ),
        ({"add": (), "retrain": ("toy-plain",), "init": None}, "--retrain toy-plain: is for members of --init with"),
        ({"retrain": ("toy-plain", "toy-plain")}, "names a descriptor twice"),
        ({"retrain": ("sift",)}, r"--retrain: the model lacks \['sift'\] \(it holds "),
        ({"retrain": ("elsewhere", *MEMBERS[:2])}, "--retrain names all that the model holds"),
        ({"add": (), "retrain": ("elsewhere",)}, r"the records lack \['elsewhere'\], which --add or --retrain names"),
        ({"config": {"model": ModelConfig("pair")}}, "kind 'encoder_decoder', the configuration's of 'pair'"),
    ],
    ids=str,
)
def test_what_cannot_be_added_is_refused_before_anything_is_written(
    changes, message, model, narrow, config, toy_records, tmp_path
):
    settings = {"init": model, "freeze": "all", "add": (NEW,)} | changes
    if "start" in settings:
        settings["start"] = {"model": model, "narrow": narrow}[settings["start"]]
    changed = dataclasses.replace(config, **settings.pop("config", {}))
    with pytest.raises(ValueError, match=message):
        train(changed, toy_records, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_records_without_a_member_of_the_model_are_refused(model):
    with pytest.raises(ValueError, match="^the records hold none of the model's toy-bits, toy-plain, elsewhere"):
        with_added(TrainConfig(), (NEW, "sift"), load(model), "all", (NEW,))


def test_members_come_first_and_can_be_chosen(model):
    held, bundle = (NEW, "toy-plain", "toy-bits"), load(model)
    assert with_added(TrainConfig(), held, bundle, "all", (NEW,)).descriptors == ("toy-bits", "toy-plain", NEW)
    chosen = with_added(TrainConfig(descriptors=("toy-plain",)), held, bundle, "all", (NEW,))
    assert chosen.descriptors == ("toy-plain", NEW)
    both = with_added(TrainConfig(descriptors=(NEW, "toy-plain")), held, bundle, "all", (NEW,))
    assert both.descriptors == ("toy-plain", NEW)


def test_the_command_line_takes_several_names(monkeypatch):
    seen = {}
    monkeypatch.setattr(stage, "train", lambda *_, **settings: seen.update(settings))
    words = "train --data d --workdir r --init m.safetensors --freeze all --add a b"
    assert cli.main(words.split()) == 0
    assert (seen["freeze"], seen["add"]) == ("all", ("a", "b"))
