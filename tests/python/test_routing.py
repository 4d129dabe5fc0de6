"""Choices of experts: of Megatron-core's routers, with its own functions, and of blocks that nobody names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from ttrace.programs.expert_choices import Choices, expert_blocks
from ttrace.programs.megatron_routing import watch_routing

moe_utils = pytest.importorskip(
    "megatron.core.transformer.moe.moe_utils", reason="pip install --no-deps megatron-core==0.16.1 einops"
)

TOKENS, SAMPLES, EXPERTS, COUNT = 6, 2, 8, 2


class Recorded:
    """What `follow` was given, and what it returns instead."""

    def __init__(self, instead: torch.Tensor | None = None):
        self.calls: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.instead = instead

    def __call__(self, choices: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
        self.calls.append((choices, margins))
        return choices if self.instead is None else self.instead


def logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(TOKENS, SAMPLES, EXPERTS, generator=generator).requires_grad_()


def router(**options) -> SimpleNamespace:
    def routing(logits):
        flat = logits.view(-1, EXPERTS)
        return moe_utils.topk_routing_with_score_function(flat, COUNT, **options)

    return SimpleNamespace(topk=COUNT, routing=routing)


def watched(follow, is_traced: bool = True, **options) -> SimpleNamespace:
    result = router(**options)
    watch_routing(result, "decoder.layers.0.mlp.router", lambda: is_traced, follow)
    return result


def others() -> torch.Tensor:
    """Choices that are hardly anybody's own."""
    first = torch.arange(TOKENS * SAMPLES).view(TOKENS, SAMPLES) % EXPERTS
    return torch.stack([first, (first + 3) % EXPERTS], -1)


OPTIONS = [
    {},
    {"use_pre_softmax": True},
    {"score_function": "sigmoid", "expert_bias": torch.linspace(-0.1, 0.1, EXPERTS)},
    {"num_groups": 4, "group_topk": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_own_choices_are_told_and_nothing_else_changes(options):
    follow = Recorded()
    probabilities, chosen = watched(follow, **options).routing(logits())
    plain, plain_chosen = router(**options).routing(logits())
    assert torch.equal(probabilities, plain) and torch.equal(chosen, plain_chosen)
    [(choices, margins)] = follow.calls
    assert choices.shape == (TOKENS, SAMPLES, COUNT) and margins.shape == (TOKENS, SAMPLES)
    assert torch.equal(torch.zeros_like(chosen).scatter(1, choices.view(-1, COUNT), True), chosen)
    assert (margins >= 0).all()


def test_margins_are_what_the_last_choice_beats_the_next_expert_by():
    follow = Recorded()
    scores = logits()
    watched(follow).routing(scores)
    best = scores.detach().sort(-1, descending=True)[0]
    assert torch.equal(follow.calls[0][1], best[..., COUNT - 1] - best[..., COUNT])


def test_margins_of_groups_count_as_well():
    follow = Recorded()
    scores = logits()
    watched(follow, num_groups=4, group_topk=2).routing(scores)
    of_groups = scores.detach().view(TOKENS, SAMPLES, 4, 2).max(-1)[0].sort(-1, descending=True)[0]
    margins = follow.calls[0][1]
    assert torch.isfinite(margins).all()
    assert (margins <= of_groups[..., 1] - of_groups[..., 2]).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_choices_that_are_followed_have_their_own_scores_and_gradients(options):
    scores = logits()
    probabilities, chosen = watched(Recorded(others()), **options).routing(scores)
    expected = torch.zeros_like(chosen).scatter(1, others().view(-1, COUNT), True)
    assert torch.equal(chosen, expected)
    assert torch.isfinite(probabilities).all() and torch.equal(probabilities != 0, expected)
    torch.manual_seed(1)
    probabilities.mul(torch.randn_like(probabilities)).sum().backward()
    assert torch.isfinite(scores.grad).all()
    if not options:
        assert torch.equal(scores.grad.view(-1, EXPERTS) != 0, expected)


def test_the_auxiliary_loss_follows_where_it_would_have_chosen_the_same():
    seen = []

    def routing(logits):
        flat = logits.view(-1, EXPERTS)
        moe_utils.topk_routing_with_score_function(flat, COUNT)
        seen.append(moe_utils.compute_routing_scores_for_aux_loss(flat, COUNT, "softmax")[0])

    subject = SimpleNamespace(topk=COUNT, routing=routing)
    watch_routing(subject, "router", lambda: True, Recorded(others()))
    subject.routing(logits())
    assert torch.equal(seen[0], torch.zeros_like(seen[0]).scatter(1, others().view(-1, COUNT), True))


def test_tokens_that_an_expert_has_no_room_for_are_no_choices():
    follow = Recorded()

    def routing(logits):
        flat = logits.view(-1, EXPERTS)
        chosen = moe_utils.topk_routing_with_score_function(flat, COUNT)
        return moe_utils.apply_router_token_dropping(*chosen, router_topk=COUNT, capacity_factor=0.5)

    subject = SimpleNamespace(topk=COUNT, routing=routing)
    watch_routing(subject, "router", lambda: True, follow)
    subject.routing(logits())
    assert len(follow.calls) == 1


def test_outside_of_traced_steps_nobody_is_asked():
    follow = Recorded(others())
    probabilities, _ = watched(follow, is_traced=False).routing(logits())
    assert torch.equal(probabilities, router().routing(logits())[0]) and not follow.calls


def test_a_fused_router_is_said_not_to_be_recorded_once(caplog):
    subject = SimpleNamespace(topk=COUNT, routing=lambda logits: logits)
    watch_routing(subject, "decoder.layers.0.mlp.router", lambda: True, Recorded())
    subject.routing(logits())
    subject.routing(logits())
    assert caplog.text.count("decoder.layers.0.mlp.router chooses experts in a fused kernel") == 1


class Stacked(nn.Module):
    """Experts as slices of a weight, and a router beside them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, EXPERTS, bias=False)
        self.experts = nn.Module()
        self.experts.weight = nn.Parameter(torch.ones(EXPERTS, 6, 6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.topk(self.gate(x).softmax(-1), COUNT)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))


def test_blocks_of_experts_are_known_by_their_structure():
    """Mixtral of transformers recorded no choice, so that a flipped one was a divergence."""
    model = nn.ModuleList([Stacked(), Listed(), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))])
    stacked, listed = model[0], model[1]
    assert list(expert_blocks(list(model.modules()))) == [
        (stacked, stacked.experts, EXPERTS), (listed, listed.experts, 4)
    ]  # fmt: skip


class Deeper(nn.Module):
    """Experts in a module of the child that hands them their rows, as torchtitan's."""

    def __init__(self):
        super().__init__()
        self.router, self.routed = nn.Module(), nn.Module()
        self.router.gate = nn.Linear(6, EXPERTS)
        self.routed.experts = nn.Module()
        self.routed.experts.weight = nn.Parameter(torch.ones(EXPERTS, 6, 5))
        self.routed.experts.bias = nn.Parameter(torch.ones(EXPERTS, 5))


def test_experts_may_lie_deeper_than_their_router():
    """Symptom: choices of torchtitan's experts were not recorded, and a flipped one was a false alarm."""
    model = nn.Sequential(nn.Linear(6, 6), Deeper())
    assert list(expert_blocks(list(model.modules()))) == [(model[1], model[1].routed, EXPERTS)]


def test_layers_are_no_experts():
    """A model has as many layers, alike, as it has rows of nothing."""
    model = nn.Module()
    model.tokens, model.norm = nn.Embedding(64, 4), nn.LayerNorm(4)
    model.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    assert list(expert_blocks(list(model.modules()))) == []


def test_a_block_follows_other_choices_with_their_scores():
    block, follow = Stacked(), Recorded(torch.tensor([[3, 1]] * 5))
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    with Choices(EXPERTS, follow):
        scores, chosen = block(x)
    assert torch.equal(chosen, follow.instead)
    assert torch.equal(scores, block.gate(x).softmax(-1).gather(1, chosen))
    [(own, margins)] = follow.calls
    assert torch.equal(own, block(x)[1]) and margins.shape == (5,)


def test_choices_of_samples_and_positions_are_followed_where_they_stand():
    """torchtitan's scores have three dimensions, and its choices are not sorted."""
    scores = torch.rand(2, 5, EXPERTS, generator=torch.Generator().manual_seed(1))
    follow = Recorded(torch.tensor([3, 1]).expand(2, 5, COUNT))
    with Choices(EXPERTS, follow):
        values, chosen = torch.topk(scores, k=COUNT, dim=-1, sorted=False)
    assert torch.equal(chosen, follow.instead)
    assert torch.equal(values, scores[..., [3, 1]])
    [(own, margins)] = follow.calls
    best = scores.sort(-1, descending=True)
    assert torch.equal(own.sort(-1)[0], best.indices[..., :COUNT].sort(-1)[0])
    assert torch.equal(margins, best.values[..., COUNT - 1] - best.values[..., COUNT])


def test_choices_among_groups_of_experts_come_as_close_as_those_of_their_groups():
    scores = torch.tensor([[[0.9, 0.8, 0.1, 0.2, 0.85, 0.7, 0.3, 0.4]]])
    follow = Recorded()
    with Choices(EXPERTS, follow):
        grouped = scores.unflatten(-1, (4, 2))
        best = torch.topk(grouped.sum(-1), k=2, dim=-1, sorted=False)[1]
        others = torch.ones(1, 1, 4, dtype=torch.bool).scatter_(-1, best, False)
        torch.topk(grouped.masked_fill(others.unsqueeze(-1), float("-inf")).flatten(-2), k=2, dim=-1)
    [(_, margins)] = follow.calls
    assert margins.item() == pytest.approx(0.05)  # 0.85 before 0.8; the groups 1.55 before 0.7


@pytest.fixture
def mesh():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_choices_of_dtensors_lie_as_their_scores(mesh):
    scores = distribute_tensor(torch.rand(2, 5, EXPERTS), mesh, [Shard(1)])
    follow = Recorded()
    with Choices(EXPERTS, follow):
        torch.topk(scores, k=COUNT, dim=-1)
    [(choices, margins)] = follow.calls
    assert choices.placements == margins.placements == (Shard(1),)
    assert choices.shape == (2, 5, COUNT) and margins.shape == (2, 5)
    followed = Recorded(torch.tensor([3, 1]).expand(2, 5, COUNT))
    with Choices(EXPERTS, followed):
        values, chosen = torch.topk(scores, k=COUNT, dim=-1)
    assert torch.equal(chosen.full_tensor(), followed.instead)
    assert torch.equal(values.full_tensor(), scores.full_tensor()[..., [3, 1]])
