"""The stage `xdesc models`."""

from __future__ import annotations

import json

from tests.pretrained.conftest import make_bundle
from tests.support.context_translators import context_translator
from xdesc_jax import cli
from xdesc_jax.pretrained import listing


def test_an_empty_folder_says_so(empty, capsys):
    assert cli.main(["models"]) == 0
    assert "No models ship" in capsys.readouterr().out


def test_the_table_has_kind_size_and_mean_figures(shipped, capsys):
    assert cli.main(["models"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    size = f"{(shipped / 'colmap.safetensors').stat().st_size / 1e6:.3f}"
    assert ["colmap", "translator", "colmap", size, "0.500", "0.250", "0.550"] in lines
    assert ["hardnet-xdesc", "weights", "colmap", "0.000", "0.500", "-", "-"] in lines


def test_descriptors_and_their_matrix_are_listed(shipped, capsys):
    listing.models()
    shown = capsys.readouterr().out
    assert "ones, twos; train/photos, 2026-01-31" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert lines.count(["1", "ones", "0.250", "0.375"]) == 2  # one for each translator
    assert lines.count(["2", "twos", "0.125", "0.750"]) == 2


def test_json_holds_the_cards_with_file_and_size(shipped, capsys):
    assert cli.main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [card["name"] for card in found] == ["colmap", "hardnet-xdesc", "opencv"]
    assert found[0]["bytes"] == (shipped / "colmap.safetensors").stat().st_size
    assert found[0]["figures"]["dev/homography"]["native"] == {"ones": 0.25, "twos": 0.75}


def test_a_card_without_figures_is_listed(shipped, capsys):
    card = json.loads((shipped / "colmap.json").read_text())
    (shipped / "colmap.json").write_text(json.dumps({**card, "figures": {}}))
    assert cli.main(["models"]) == 0
    assert ["-", "-", "-"] in [line.split()[-3:] for line in capsys.readouterr().out.splitlines()]


def test_what_works_less_well_is_listed(shipped, capsys):
    card = json.loads((shipped / "colmap.json").read_text())
    (shipped / "colmap.json").write_text(json.dumps({**card, "limits": "ones are hardly translated"}))
    listing.models()
    shown = capsys.readouterr().out
    assert shown.count("works less well") == 1 and "ones are hardly translated" in shown


def test_joint_spaces_are_listed_with_the_weights_of_their_models(shipped, capsys):
    card = json.loads((shipped / "opencv.json").read_text())
    (shipped / "opencv.json").write_text(json.dumps({**card, "space_id": "0123456789ab"}))
    make_bundle().save(shipped / "opencv.safetensors", "int8")
    assert cli.main(["models"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["opencv", "0123456789ab,", "int8", "weights"] in lines


def test_what_encoders_look_at_is_listed(shipped, capsys):
    card = json.loads((shipped / "opencv.json").read_text())
    (shipped / "opencv.json").write_text(json.dumps({**card, "space_id": "0123456789ab"}))
    context_translator().save(shipped / "opencv.safetensors")
    assert cli.main(["models"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    told = "looks at 3 nearest and 2 larger neighbours (turned, turned-bits)"
    assert f"opencv 0123456789ab, float32 weights; {told}" in shown
