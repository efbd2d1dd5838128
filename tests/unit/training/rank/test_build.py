"""A user's own wrapper: counted, made anew in every generation, and refused where it would break the next one."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from lastgood.base.errors import BadInput, Refused
from lastgood.training.rank.build import Blueprint
from lastgood.training.rank.reductions import Reductions
from lastgood.training.rank.replica import Replica
from lastgood.training.rank.state import digest_tensors
from lastgood.training.slot import StatusSlot


class NoInjection:
    def strike_if_due(self):
        pass

    def spoil_if_due(self, gradient):
        pass


pytestmark = pytest.mark.usefixtures("group")


@pytest.fixture
def slot(tmp_path):
    made = StatusSlot(tmp_path / "w0", create=True)
    made.begin_generation(1, 0)
    yield made
    made.close()


def make_model():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def replica_of(slot, build, *, model=None, optimizer=None, scheduler=None):
    if model is None:
        model = make_model()
        optimizer = make_optimizer(model)
    blueprint = Blueprint(model, optimizer, scheduler, build)
    blueprint.check()
    trainable = blueprint.make_trainable(None, {})
    replica = Replica(
        blueprint,
        trainable,
        slot,
        ddp={},
        hook=None,
        hook_state=None,
        injection=NoInjection(),
        reductions=Reductions(),
    )
    return SimpleNamespace(replica=replica, trainable=trainable)


def train(made, steps=2):
    for _ in range(steps):
        made.trainable.optimizer.zero_grad()
        made.replica(torch.ones(3, 4)).square().mean().backward()
        made.trainable.optimizer.step()
    return digest_tensors(dict(made.trainable.model.named_parameters()))


def wrap_plain(module, group):
    return DistributedDataParallel(module, process_group=group)


def test_a_wrapper_of_ones_own_is_counted_as_ours_is(slot):
    made = replica_of(slot, wrap_plain)
    made.replica.wrap(is_synced=False)
    made.replica.hook.begin_step()
    train(made, steps=1)
    assert slot.view().launches == slot.view().completions == 1
    assert made.replica.hook.grad_norm() > 0


def test_a_wrapper_inside_a_compiled_module_is_found_and_counted(slot):
    made = replica_of(slot, lambda m, g: torch.compile(wrap_plain(m, g), backend="eager"))
    made.replica.wrap(is_synced=False)
    train(made, steps=1)
    assert slot.view().launches == 1


def test_a_hook_that_build_registers_decides_and_is_counted(slot):
    seen = []

    def build(module, group):
        wrapped = wrap_plain(module, group)

        def hook(state, bucket):
            seen.append(state)
            return fp16_compress_hook(group, bucket)

        wrapped.register_comm_hook("mine", hook)
        return wrapped

    made = replica_of(slot, build)
    made.replica.wrap(is_synced=False)
    train(made, steps=1)
    assert seen == ["mine"]
    assert slot.view().launches == slot.view().completions == 1


def test_a_built_in_hook_is_left_as_it_is_and_not_counted(slot):
    def build(module, group):
        wrapped = wrap_plain(module, group)
        wrapped._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        return wrapped

    made = replica_of(slot, build)
    made.replica.wrap(is_synced=False)
    train(made, steps=1)
    assert slot.view().launches == 0


def test_torch_has_its_own_way_to_register_hooks_again_behind_build(slot):
    real = DistributedDataParallel.register_comm_hook
    replica_of(slot, wrap_plain).replica.wrap(is_synced=False)
    assert DistributedDataParallel.register_comm_hook is real


def test_build_is_called_again_on_the_same_module_with_the_present_group(slot):
    calls = []

    def build(module, group):
        calls.append((module, group))
        return wrap_plain(module, group)

    made = replica_of(slot, build)
    made.replica.wrap(is_synced=False)
    made.replica.wrap(is_synced=True)
    assert calls == [(made.trainable.model, dist.group.WORLD)] * 2


def test_two_wrappers_in_one_module_both_enter_the_norm(slot):
    class Pair(torch.nn.Module):
        def __init__(self, module, group):
            super().__init__()
            self.first, self.second = (wrap_plain(part, group) for part in module)

        def forward(self, x):
            return self.second(self.first(x))

    made = replica_of(slot, Pair)
    made.replica.wrap(is_synced=False)
    made.replica.hook.begin_step()
    train(made, steps=1)
    norms = [p.grad.norm() for p in made.trainable.model.parameters()]
    assert made.replica.hook.grad_norm() == pytest.approx(float(torch.stack(norms).norm()))
    assert slot.view().launches == 2


def test_a_model_that_is_made_anew_gets_a_new_optimizer_and_the_old_one_is_unusable(slot):
    made = replica_of(
        slot,
        wrap_plain,
        model=make_model,
        optimizer=make_optimizer,
        scheduler=torch.optim.lr_scheduler.ConstantLR,
    )
    first_model = made.trainable.model
    made.replica.wrap(is_synced=False)
    assert made.trainable.model is first_model, "the one that warmed the spare up serves first"
    optimizer, scheduler = made.trainable.optimizer, made.trainable.scheduler
    before = train(made)
    made.replica.wrap(is_synced=True)
    assert made.trainable.model is not first_model
    assert train(made) == before, "made anew from the same seed, trained for the same steps"
    for stale in (optimizer, scheduler):
        with pytest.raises(Refused, match=r"write: run\.optimizer\.step\(\)"):
            stale.step()


def checkpointed_in_place(module, group):
    module[0] = torch.nn.Sequential(module[0])
    return wrap_plain(module, group)


def hooked_in_place(module, group):
    module[0].register_forward_hook(lambda *_: None)
    return wrap_plain(module, group)


def replaced_in_place(module, group):
    module[1].weight = torch.nn.Parameter(module[1].weight.detach().clone())
    return wrap_plain(module, group)


def with_more_parameters(module, group):
    return wrap_plain(torch.nn.Sequential(module, torch.nn.Linear(1, 1)), group)


def raising(module, group):
    return wrap_plain(module.layers, group)


@pytest.mark.parametrize(
    ("build", "needle"),
    [
        (checkpointed_in_place, "build changed the bare module: found 0"),
        (hooked_in_place, "build changed the bare module: found 0"),
        (replaced_in_place, r"build changed the bare module: found 1.weight \(parameter\)"),
        (with_more_parameters, r"not part of the state: found module.1.weight"),
        (raising, r"test_build.py:\d+: build raised: found AttributeError"),
    ],
)
def test_what_would_break_the_next_generation_is_refused(slot, build, needle):
    with pytest.raises(Refused, match=needle):
        replica_of(slot, build).replica.wrap(is_synced=False)


def test_build_has_to_return_the_module(slot):
    with pytest.raises(BadInput, match="end the function with: return wrapped"):
        replica_of(slot, lambda m, g: None).replica.wrap(is_synced=False)


def test_an_error_of_the_group_inside_build_is_left_to_recovery(slot):
    def build(module, group):
        raise RuntimeError("[gloo] Connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        replica_of(slot, build).replica.wrap(is_synced=False)


MODEL = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("blueprint", "needle"),
    [
        (Blueprint("x", make_optimizer), "neither a module nor a function"),
        (Blueprint(make_model, make_optimizer(MODEL)), "two objects or two functions"),
        (Blueprint(MODEL, make_optimizer), "two objects or two functions"),
        (Blueprint(make_model, make_optimizer, scheduler=object()), "belongs to one optimizer"),
        (Blueprint(MODEL, make_optimizer(MODEL), build=3), "build is not a function"),
    ],
)
def test_what_is_seen_to_be_wrong_is_said_before_there_is_a_rank(blueprint, needle):
    with pytest.raises(BadInput, match=needle):
        blueprint.check()


def test_build_and_options_of_ddp_exclude_each_other():
    with pytest.raises(BadInput, match="give DDP its options and its hook inside build"):
        Blueprint(MODEL, make_optimizer(MODEL), build=wrap_plain).check(has_ddp_options=True)
