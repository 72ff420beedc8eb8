"""Which calibrated ratios go with translated rows."""

from __future__ import annotations

from xdesc_jax.descriptors import DescriptorSpec, embedding_spec
from xdesc_jax.translation.ratios import key, parted, strictest, trace

A, B = DescriptorSpec("a", 4), DescriptorSpec("b", 5)
JOINT = embedding_spec("0123456789ab", 6)
RATIOS = {
    "a": 0.9, "b": 0.8, "a->b": 0.7, "b->a": 0.6, "a|b": 0.55, "b|a": 0.65, "a|a": 0.75, "b|b": 0.85,
    "aa|b": 0.5, "b|aa": 0.45, "a|c": 0.4, "c|a": 0.35,
}  # fmt: skip


def test_a_name_is_read_as_it_was_made():
    for mode, name in (("translated", "a->b"), ("translated", "a->a"), ("joint", "a|b"), ("joint", "a|a")):
        assert key(mode, "a", name[-1]) == name and parted(name) == (mode, "a", name[-1])
    assert key("native", "a", "a") == "a" and parted("a") == ("native", "a", "a")
    assert parted("a->b->c") == ("translated", "a->b", "c")


def test_embeddings_keep_the_ratios_of_both_sides_of_a_pair():
    """Rows of `a` may be on either side; `aa` is another descriptor."""
    kept = {"a|b": 0.55, "b|a": 0.65, "a|a": 0.75, "a|c": 0.4, "c|a": 0.35}
    assert trace(A, None, JOINT, RATIOS) == ("a", kept)


def test_translations_keep_the_ratio_of_their_own_route_alone():
    assert trace(A, None, B, RATIOS) == ("a", {"a->b": 0.7})
    assert trace(B, None, A, RATIOS) == ("b", {"b->a": 0.6})


def test_embeddings_are_halfway_on_the_route_of_what_they_were_made_from():
    assert trace(JOINT, "a", B, RATIOS) == ("a", {"a->b": 0.7})


def test_no_ratio_is_calibrated_for_a_translation_of_a_translation():
    assert trace(B, "a", A, RATIOS) == ("a->b", {})
    assert trace(B, "a", JOINT, RATIOS) == ("a->b", {})


def test_of_two_thresholds_the_smaller_counts_and_of_one_that_one():
    assert strictest({"a": 0.9, "b": 0.5, "c": 0.2}, {"a": 0.7, "b": 0.6, "d": 0.3}) == {
        "a": 0.7, "b": 0.5, "c": 0.2, "d": 0.3,
    }  # fmt: skip
