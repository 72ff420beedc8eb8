"""Scripts of benchmarks that share parts with each other begin to measure."""

import sys

import pytest

from tests.support.root import ROOT


def test_the_latency_of_translation_is_measured_on_the_networks_of_its_rate(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import translation_latency

    def forms(translator, folder):
        return {"stream": (1.0, translator.stream("sift", "hardnet"))}

    monkeypatch.setattr(translation_latency, "forms", forms)
    monkeypatch.setattr(translation_latency, "BATCHES", (1, 2))
    translation_latency.main(1)
    assert "2 rows" in capsys.readouterr().out.splitlines()[0]


def test_localizing_is_timed_on_a_map_as_the_localizer_takes_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import localize

    for name, value in (("PHOTOS", 4), ("POINTS", 1000), ("KEYPOINTS", 200)):
        monkeypatch.setattr(localize, name, value)
    scene = localize.Scene()
    xy, rows, _ = scene.photo(0.1, 160)
    localizer = localize.Localizer(localize.build(scene, None), retrieval=None)
    found = localizer.localize(xy, rows, localize.CAMERA, descriptor=localize.SPEC.name)
    assert found.status == "localized"


def test_the_step_beside_pytorch_says_that_torch_is_lacking(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import pytorch_step

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["pytorch_step.py"])
    with pytest.raises(SystemExit):
        pytorch_step.main()
    assert "needs torch, which is not installed" in capsys.readouterr().err


def test_a_script_says_what_it_takes():
    scripts = [path.read_text() for path in (ROOT / "benchmarks").glob("*.py")]
    assert [text[:60] for text in scripts if "__main__" in text and "ArgumentParser(" not in text] == []
