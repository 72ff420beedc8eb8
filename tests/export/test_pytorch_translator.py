"""PyTorch translators against ours: the same function, layer by layer, in both directions."""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.support.root import SUPPORT
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.export.pytorch_translator import to_bundle, to_checkpoint
from xdesc_jax.files import pytorch
from xdesc_jax.train.translators import trained
from xdesc_jax.train.translators.trained import TrainedModel
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

NAMES = {"brief": "brief", "sift-kornia": "sift-kornia05", "hardnet": "hardnet", "sosnet": "sosnet"}
SPECS = {
    "brief": get_spec("brief"),
    "sift": get_spec("sift"),
    "sift-kornia05": get_spec("sift-kornia05"),
    "mine": DescriptorSpec("mine", 9, normalized=False, hidden=(7,)),
    "bits": binary_spec("bits", 19),
}


def steps(layers, x):
    """What each layer gives before its ReLU."""
    found = []
    for i, (kernel, bias) in enumerate(layers):
        x = (np.maximum(x, 0) if i else x) @ kernel + bias
        found.append(x)
    return found


def assert_same_as_torch(bundle, names, found):
    """Every encoder and decoder of `bundle` against a file of pytorch_reference.py, layer by layer and in the end."""
    translator = Translator(bundle)
    for theirs, name in names.items():
        rows = found[theirs]
        embedding = found[f"encoders/{theirs}/{len(bundle.networks[f'encoder/{name}'])}"]
        for role, x in (("encoder", rows), ("decoder", embedding)):
            ours = steps(bundle.networks[f"{role}/{name}"], x)
            for i, y in enumerate(ours):
                np.testing.assert_allclose(y, found[f"{role}s/{theirs}/{i}"], atol=1e-5)
            target = "embedding" if role == "encoder" else name
            y = translator.stream(name, target).probabilities(rows)
            np.testing.assert_allclose(y, found[f"{role}s/{theirs}/{len(ours)}"], atol=1e-5)


def assert_same_function(found, expected):
    assert found.specs == expected.specs and found.embedding_width == expected.embedding_width
    assert found.networks.keys() == expected.networks.keys()
    for name, layers in expected.networks.items():
        for (kernel, bias), (kernel0, bias0) in zip(found.networks[name], layers, strict=True):
            np.testing.assert_allclose(kernel, kernel0, atol=1e-6)
            np.testing.assert_allclose(bias, bias0, atol=1e-6)


@pytest.fixture(scope="module")
def imported(pytorch_files):
    """The model file that `xdesc import` makes of a file with norms, whose names are known."""
    out = pytorch_files / "model.safetensors"
    assert cli.main(["import", str(pytorch_files / "model.pth"), str(out)]) == 0
    return model_file.load(out)


@pytest.fixture(scope="module")
def published():
    """Content of a checkpoint as the reader gives it; made here, so that torch is not needed."""
    rng = np.random.default_rng(0)

    def state(*widths):
        found = {}
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
            norm = {"weight": b, "bias": b, "running_mean": b, "running_var": b} if i < len(widths) - 2 else {}
            found |= {f"network.{3 * i}.weight": rng.normal(size=(b, a)), f"network.{3 * i}.bias": rng.normal(size=b)}
            found |= {f"network.{3 * i + 1}.{k}": rng.uniform(0.1, 2, n) for k, n in norm.items()}
        return {k: v.astype(np.float32) for k, v in found.items()}

    return {
        "args": argparse.Namespace(features=["brief", "hardnet"]),
        "epoch_idx": 5,
        "encoders": [("brief", state(512, 7, 6, 5)), ("hardnet", state(128, 4, 3, 5))],
        "decoders": [("brief", state(5, 6, 7, 512)), ("hardnet", state(5, 3, 4, 128))],
    }


def trained_model():
    """A run's model with norms far from those of a fresh network."""
    rng = np.random.default_rng(5)

    def layers(*widths):
        found = []
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
            layer = {"kernel": rng.normal(0, a**-0.5, (a, b)), "bias": rng.normal(size=b) * (i == len(widths) - 2)}
            if i < len(widths) - 2:
                layer |= {"scale": rng.uniform(0.3, 2, b), "offset": rng.normal(size=b)}
                layer |= {"mean": rng.normal(size=b), "var": rng.uniform(0.05, 2, b)}
            found.append({k: v.astype(np.float32) for k, v in layer.items()})
        return found

    networks = {}
    for name, spec in SPECS.items():
        hidden = (17,) if name == "mine" else (13, 11)
        networks[f"encoder/{name}"] = layers(spec.width, *hidden, 8)
        networks[f"decoder/{name}"] = layers(8, *hidden[::-1], spec.width)
    samples = {n: rng.integers(0, 255, (40, s.stored_width), dtype=np.uint8) for n, s in SPECS.items() if s.binary}
    for name in SPECS.keys() - samples.keys():
        x = np.abs(rng.normal(size=(40, SPECS[name].width))).astype(np.float32)
        samples[name] = x / np.linalg.norm(x, axis=1, keepdims=True)
    return TrainedModel("encoder_decoder", SPECS, 8, networks, {}, samples, {"epochs": 5}, {"steps": 780})


def test_an_imported_file_computes_what_its_torch_modules_do(imported, pytorch_files):
    with np.load(pytorch_files / "model.npz") as found:
        assert_same_as_torch(imported, NAMES, found)
    assert imported.provenance["names"] == NAMES and imported.provenance["epoch_idx"] == 5
    assert imported.config["lr"] == 1e-3 and not imported.statistics and not imported.sample.inputs


def test_a_file_without_norms_computes_what_its_torch_modules_do(pytorch_files, tmp_path):
    words = ["import", str(pytorch_files / "plain.pth"), str(tmp_path / "m.safetensors")]
    assert cli.main([*words, "--config", str(pytorch_files / "plain.json")]) == 0
    with np.load(pytorch_files / "plain.npz") as found:
        assert_same_as_torch(model_file.load(tmp_path / "m.safetensors"), NAMES, found)


def test_exported_files_load_strictly_into_torch_modules_and_come_back(imported, pytorch_files, tmp_path, monkeypatch):
    model = trained_model()
    monkeypatch.setattr(trained, "load_model", lambda run, which="best": model)
    run, again, back = tmp_path / "run.pth", tmp_path / "again.pth", tmp_path / "back.safetensors"
    (tmp_path / "run").mkdir(exist_ok=True)
    assert cli.main(["export", str(tmp_path / "run"), str(run), "--format", "pth"]) == 0
    assert cli.main(["export", str(pytorch_files / "model.safetensors"), str(again), "--format", "pth"]) == 0
    script = SUPPORT / "pytorch_reference.py"
    subprocess.run([sys.executable, script, "run", run, again], check=True)
    assert cli.main(["import", str(run), str(back)]) == 0
    bundle = model_file.load(back)
    with np.load(tmp_path / "run.npz") as found:
        theirs = {"sift-kornia" if name == "sift-kornia05" else name: name for name in SPECS}
        assert_same_as_torch(bundle, theirs, found)
        # The norms themselves, not a folded form of them.
        state = dict(pytorch.read(run)["encoders"])["mine"]
        for theirs, ours in (("running_mean", "mean"), ("running_var", "var"), ("weight", "scale"), ("bias", "offset")):
            np.testing.assert_array_equal(state[f"network.1.{theirs}"], model.networks["encoder/mine"][0][ours])
    with np.load(tmp_path / "again.npz") as found:
        assert_same_as_torch(imported, NAMES, found)
    assert bundle.specs == SPECS


def test_export_skips_finished_work_and_keeps_another_file(tmp_path, monkeypatch, capsys):
    """With a writer of bytes for torch's."""
    model = trained_model()
    monkeypatch.setattr(trained, "load_model", lambda run, which="best": model)
    monkeypatch.setattr(pytorch, "write", lambda path, content: path.write_bytes(b"as torch wrote it"))
    (tmp_path / "run").mkdir(exist_ok=True)
    words = ["export", str(tmp_path / "run"), str(tmp_path / "m.pth"), "--format", "pth"]
    assert cli.main(words) == 0 and cli.main(words) == 0
    assert "m.pth (up to date)" in capsys.readouterr().out
    config = json.loads((tmp_path / "m.pth.config.json").read_text())
    assert config["emb_dim"] == 8 and config["use_bn"] and config["sift-kornia"]["hidden_dims"] == [13, 11]
    (tmp_path / "m.pth").write_bytes(b"another")
    assert cli.main(words) == 2
    assert "m.pth is there already, and no record of what made it fits it" in capsys.readouterr().err
    assert (tmp_path / "m.pth").read_bytes() == b"another"
    assert cli.main([*words, "--overwrite"]) == 0


def test_a_model_goes_out_and_comes_back_as_the_same_function(published):
    first = to_bundle(published, None, "x.pth")
    networks = {name: [{"kernel": k, "bias": b} for k, b in layers] for name, layers in first.networks.items()}
    content, config = to_checkpoint(first.specs, networks, 5, 3, "m")
    assert content["epoch_idx"] == 3 and content["args"].features == ["brief", "hardnet"]
    assert config["brief"]["hidden_dims"] == [7, 6]
    assert_same_function(to_bundle(content, None, "y.pth"), first)


def test_a_model_comes_back_into_the_space_it_was_of_as_long_as_its_encoders_are_the_same(published):
    first = to_bundle(published, None, "x.pth")
    networks = {name: [{"kernel": k, "bias": b} for k, b in layers] for name, layers in first.networks.items()}
    content, _ = to_checkpoint(first.specs, networks, 5, 3, "m", "0123456789ab")
    assert to_bundle(content, None, "y.pth").space_id == "0123456789ab"
    name, state = content["encoders"][0]
    state["network.0.bias"] = state["network.0.bias"] + np.float32(0.01)  # trained on by others
    content["encoders"][0] = (name, state)
    assert to_bundle(content, None, "y.pth").space_id != "0123456789ab"


def test_the_configuration_says_what_a_name_means(published):
    """As a name of the registry, as a whole spec, or as a descriptor of one's own."""
    rename = {"brief": "orbit", "hardnet": "net"}
    content = {**published, **{k: [(rename[n], s) for n, s in published[k]] for k in ("encoders", "decoders")}}
    config = {
        "orbit": {"descriptor_dim": 512, "l2_norm": False, "last_activation": "Sigmoid"},
        "net": {"descriptor_dim": 128, "hidden_dims": [4, 3], "l2_norm": False, "last_activation": "relu"},
    }
    specs = to_bundle(content, config, "x").specs
    assert specs["orbit"] == binary_spec("orbit", 512, hidden=(7, 6))
    assert specs["net"] == DescriptorSpec("net", 128, normalized=False, hidden=(4, 3), output="relu")
    whole = DescriptorSpec("teblid", 512, "binary", normalized=False, output="sigmoid")
    config = {"orbit": {"xdesc": whole.to_dict()}, "net": {"xdesc": "hardnet-xdesc"}}
    assert to_bundle(content, config, "x").specs == {"teblid": whole, "hardnet-xdesc": get_spec("hardnet-xdesc")}


def without(key):
    return lambda content: content.pop(key)


def first_encoder(change):
    """A change to the state dict of the first encoder, brief's with widths 512 7 6 5."""
    return lambda content: change(content["encoders"][0][1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("decoders"), r"not a translator: found \['args', .*expected 'encoders' and 'decoders'"),
        (lambda c: c.update(encoders=[1]), r"'encoders' is no list of \(name, state dict\) pairs"),
        (lambda c: c["encoders"].append(c["encoders"][0]), r"names \['brief', 'hardnet', 'brief'\], expected"),
        (lambda c: c["decoders"].pop(), r"encoders of \['brief', 'hardnet'\], but decoders of \['brief'\]"),
        (first_encoder(without("network.3.bias")), "encoder of 'brief': .*missing 'network.3.bias'; unexpected none"),
        (first_encoder(without("network.1.running_var")), "missing 'network.1.running_var'"),
        (first_encoder(lambda s: s.update({"gate": np.ones(2)})), "unexpected 'gate'"),
        (first_encoder(lambda s: s.update({"network.99.weight": np.ones((1, 1))})), "missing 'network.7.weight'"),
        (
            first_encoder(lambda s: s.update({"network.3.weight": np.ones((6, 8))})),
            r"'network.3.weight' has shape \(6, 8\), expected \(6, 7\)",
        ),
        (first_encoder(lambda s: s.update({"network.0.weight": np.ones(7)})), r"shape \(7,\), expected \(out, in\)"),
        (
            first_encoder(lambda s: s.update({"network.1.weight": np.ones(8)})),
            r"'network.1.weight' has shape \(8,\), expected \(7,\)",
        ),
        (first_encoder(lambda s: s["network.0.bias"].fill(np.nan)), "'network.0.bias' holds a value that is not"),
        (
            first_encoder(lambda s: s.update({"network.0.weight": np.ones((7, 256))})),
            "'brief' has width 256, but the descriptor 'brief' has 512",
        ),
        (
            first_encoder(lambda s: s.update({"network.6.weight": np.ones((4, 6)), "network.6.bias": np.ones(4)})),
            "decoder of 'brief' has embeddings of width 5, expected 4",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_file_found_and_expected(published, change, message):
    content = copy.deepcopy(published)
    change(content)
    with pytest.raises(ValueError, match=f"^model.pth: .*{message}"):
        to_bundle(content, None, "model.pth")


ENTRY = {"descriptor_dim": 512, "hidden_dims": [7, 6], "l2_norm": False, "last_activation": "sigmoid"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "holds a list, expected an object"),
        ({"use_bm": True}, "unknown key 'use_bm', expected some of .*'use_bn'"),
        ({"emb_dim": "5"}, "'emb_dim' is \"5\", expected int"),
        ({"brief": {**ENTRY, "l2": True}}, "entry 'brief': unknown key 'l2'"),
        ({"brief": {**ENTRY, "hidden_dims": [7, "6"]}}, r"'hidden_dims' is \[7, \"6\"\], expected list"),
        ({"emb_l2_norm": False}, '"emb_l2_norm": false.*expected embeddings of unit length'),
        ({"emb_last_activation": "relu"}, '"emb_last_activation": "relu".*without activation'),
        ({"emb_dim": 6}, "encoder of 'brief' has embeddings of width 5, expected 6"),
        ({"use_bn": False}, "encoder of 'brief': holds batch norms, but the configuration says use_bn is False"),
        ({"brief": {**ENTRY, "descriptor_dim": 256}}, "'brief' has width 512, but its entry says 256"),
        ({"brief": {**ENTRY, "hidden_dims": [7, 7]}}, r"hidden widths \[7, 6\], but its entry asks for \[7, 7\]"),
        ({"brief": {**ENTRY, "l2_norm": True}}, "has l2_norm true, but the descriptor 'brief' has false"),
        ({"brief": {**ENTRY, "last_activation": "relu"}}, 'has last_activation "relu", but .* has "sigmoid"'),
        ({"brief": {"xdesc": "breif"}}, "\"xdesc\" of 'brief': unknown descriptor 'breif'; did you mean brief"),
        ({"brief": {"xdesc": {"name": "b"}}}, "\"xdesc\" of 'brief' is no descriptor spec"),
        ({"hardnet": {"xdesc": "sosnet"}, "brief": {"xdesc": "hardnet"}}, "'brief' has width 512, but .* has 128"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(published, tmp_path, monkeypatch, capsys, config, message):
    monkeypatch.setattr(pytorch, "read", lambda path: published)
    (tmp_path / "model.pth").touch()
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["import", str(tmp_path / "model.pth"), str(tmp_path / "m.safetensors")]
    assert cli.main([*words, "--config", str(tmp_path / "config.json")]) == 2
    shown = capsys.readouterr().err
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        raise ValueError(shown)
    assert not (tmp_path / "m.safetensors").exists()


def test_an_unknown_name_says_which_entry_to_write(published):
    content = {**published, **{k: [("lift", s) for _, s in published[k][1:]] for k in ("encoders", "decoders")}}
    with pytest.raises(ValueError, match="model.pth: nothing says what descriptor 'lift' is .*given by --config") as e:
        to_bundle(content, None, "model.pth")
    example = json.loads(str(e.value).split("as in: ")[1])
    assert to_bundle(content, example, "model.pth").specs["lift"].hidden == (4, 3)


def test_two_names_of_one_descriptor_are_refused(published):
    content = {**published, **{k: [*published[k], ("twin", published[k][1][1])] for k in ("encoders", "decoders")}}
    with pytest.raises(ValueError, match="'hardnet' and 'twin' are both 'hardnet'"):
        to_bundle(content, {"twin": {"xdesc": "hardnet"}}, "model.pth")


def test_models_that_their_format_cannot_hold_are_refused():
    rng = np.random.default_rng(0)

    def layers(*widths):
        return [{"kernel": rng.normal(size=s), "bias": np.ones(s[1])} for s in zip(widths, widths[1:], strict=False)]

    specs = {"mine": SPECS["mine"]}
    lopsided = {"encoder/mine": layers(9, 6, 5, 8), "decoder/mine": layers(8, 6, 5, 9)}
    with pytest.raises(ValueError, match=r"m: 'mine' has hidden widths \[6, 5\] and \[6, 5\].*in reverse"):
        to_checkpoint(specs, lopsided, 8, 0, "m")
    with pytest.raises(ValueError, match="m: no network 'decoder/mine', which their format needs; it has encoder/mine"):
        to_checkpoint(specs, {"encoder/mine": lopsided["encoder/mine"]}, 8, 0, "m")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "{t}/none.pth", "{t}/m.safetensors"], "none.pth: no such PyTorch file"),
        (["import", "{t}/none.pth", "{t}/m.npz"], "m.npz: model files end in .safetensors"),
        (["import", "{t}/x.pth", "{t}/m.safetensors", "--config", "{t}/c.json"], "c.json"),
        (["import", "{t}/x.pth", "{t}/m.safetensors"], "pip install 'xdesc-jax[torch]'"),
        (["export", "{t}/pair.safetensors", "{t}/m.pth", "--format", "pth"], "kind 'pair'"),
        (["export", "{t}/pair.safetensors", "{t}/m.pth"], "end in .safetensors for --format safetensors, found '.pth'"),
        (["export", "{t}/whole.safetensors", "{t}/m.pth", "--format", "pth"], "pip install 'xdesc-jax[torch]'"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(published, tmp_path, monkeypatch, capsys, words, message):
    """All on an installation without torch."""
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "x.pth").write_bytes(b"x")
    layers = [(np.ones((9, 19), np.float32), np.ones(19, np.float32))]
    Bundle("pair", {n: SPECS[n] for n in ("mine", "bits")}, 0, {"pair/mine/bits": layers}).save(
        tmp_path / "pair.safetensors"
    )
    to_bundle(published, None, "x").save(tmp_path / "whole.safetensors")
    before = sorted(tmp_path.iterdir())
    assert cli.main([word.format(t=tmp_path) for word in words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown
    assert sorted(tmp_path.iterdir()) == before
