"""Scripts of benchmarks that share parts with each other begin to measure."""

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
