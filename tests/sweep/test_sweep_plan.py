"""Which members train together, where, and which go on."""

from __future__ import annotations

import pytest

from xdesc_jax.sweep import plan
from xdesc_jax.sweep.config import SweepConfig, expand


def names(members):
    return [member.name for member in members]


def groups(members, most):
    return plan.groups(members, most, lambda config: "keypoint")


def test_numbers_vary_within_a_group_and_shapes_between():
    members = expand(
        SweepConfig(
            grid={
                "model.embedding_width": (16, 32), "seed": (0, 1), "loss.alpha": (0.1, 0.2), "loss.margin": (0.5, 1),
                "optimizer.learning_rate": (1e-3, 1e-4), "optimizer.schedule": ("constant", "cosine"),
                "optimizer.warmup_steps": (0, 9), "descriptors": (("a",), ("b",)),
            }
        )
    )  # fmt: skip
    assert [len(group) for group in groups(members, 1000)] == [128, 128]


@pytest.mark.parametrize(
    ("field", "values"),
    [("loss.variant", ("linear", "quadratic")), ("loss.distance", ("squared", "euclidean")), ("data_seed", (0, 1)),
     ("batch_size", (64, 128)), ("epochs", (1, 2)), ("loss.beta", (0, 1)), ("model.matmul", ("float32", "bfloat16"))],
)  # fmt: skip
def test_what_changes_the_program_or_the_batches_is_apart(field, values):
    assert len(groups(expand(SweepConfig(grid={field: values})), 9)) == 2


def test_members_whose_joint_spaces_are_of_two_frames_are_apart():
    members = expand(SweepConfig(grid={"descriptors": (("sift",), ("sift", "xfeat"), ("orb",))}))
    found = plan.groups(members, 9, lambda config: "image" if "xfeat" in config.descriptors else "keypoint")
    assert list(map(names, found)) == [names(members[::2]), names(members[1:2])]


def test_two_weights_above_zero_train_together():
    assert len(groups(expand(SweepConfig(grid={"loss.beta": (0.5, 1)})), 9)) == 1


def test_groups_are_of_about_equal_size_and_at_most_so_large():
    members = expand(SweepConfig(grid={"seed": tuple(range(9))}))
    found = groups(members, 4)
    assert [len(group) for group in found] == [3, 3, 3] and names(sum(found, [])) == names(members)


def test_shards_take_each_member_once_and_keep_architectures_together():
    members = expand(SweepConfig(grid={"seed": (0, 1, 2), "model.embedding_width": (16, 32)}))
    shards = [plan.shard_of(members, i, 2) for i in range(2)]
    assert sorted(names(shards[0] + shards[1])) == sorted(names(members))
    assert [len(groups(shard, 99)) for shard in shards] == [1, 1]
    many = [plan.shard_of(members, i, 8) for i in range(8)]
    assert sorted(map(len, many)) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_rungs_grow_by_the_factor_and_end_at_the_last_epoch():
    assert plan.rungs(20, 3, 1) == [1, 3, 9, 20]
    assert plan.rungs(9, 3, 1) == [1, 3, 9]
    assert plan.rungs(5, 0, 1) == [5]
    assert plan.rungs(1, 2, 1) == [1]


def test_the_best_go_on_and_those_without_figure_do_not():
    members = expand(SweepConfig(grid={"seed": (0, 1, 2, 3, 4)}))
    figures = {members[i].name: value for i, value in ((1, 0.2), (2, 0.5), (4, 0.3))}
    assert plan.survivors(members, figures, 3) == [members[2], members[4]]
    assert plan.survivors(members, figures, 99) == [members[2]]
    assert plan.survivors(members, {}, 3) == []


@pytest.mark.parametrize("text", ["3", "2/2", "-1/2", "a/b", "1/", "/2", "0/0"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected i/n"):
        plan.parse_shard(text)


def test_shards_count_from_zero():
    assert plan.parse_shard("0/3") == (0, 3)
