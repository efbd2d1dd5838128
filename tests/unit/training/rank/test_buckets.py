"""A fresh wrapper begins with the buckets of the one before it; what DDP itself does is the oracle."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lastgood.training.rank.buckets import BucketRecord, lay_out, lays_out_again, registered_in

CAP_MB = 0.01


pytestmark = pytest.mark.usefixtures("group")


class Model(torch.nn.Module):
    """Registered in another order than it is used in, with one weight in two places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.last = torch.nn.Linear(48, 4)
        self.middle = torch.nn.Linear(48, 48)
        self.first = torch.nn.Linear(32, 48)
        self.again = torch.nn.Linear(48, 48)
        self.again.weight = self.middle.weight
        self.scale = torch.nn.Parameter(torch.ones(48, dtype=torch.float64))

    def forward(self, x):
        hidden = torch.tanh(self.middle(self.first(x))) * self.scale.float()
        return self.last(self.again(hidden))


class Wrapped:
    def __init__(self, model, *, layout=None, **options):
        self.record = BucketRecord()
        with registered_in(layout) as made:
            self.ddp = DistributedDataParallel(
                model, init_sync=False, bucket_cap_mb=CAP_MB, **options
            )
        self.record.follow(made[0])
        if layout is not None and lays_out_again(options):
            lay_out(self.ddp)

        def hook(state, bucket):
            self.record.see(bucket)
            done = dist.all_reduce(bucket.buffer(), async_op=True)
            return done.get_future().then(lambda f: f.value()[0])

        self.ddp.register_comm_hook(None, hook)

    def layouts(self, count):
        """The layout of so many passes in a row."""
        found = []
        for _ in range(count):
            self.ddp.zero_grad()
            self.ddp(torch.ones(2, 32)).square().mean().backward()
            found.append(self.record.layout)
        return found


def test_a_fresh_wrapper_has_the_buckets_of_a_later_step_in_its_first_pass_and_keeps_them():
    first, second, third = Wrapped(Model()).layouts(3)
    assert first != second == third, "the model does not show the difference"
    assert Wrapped(Model()).layouts(1) == [first]
    assert Wrapped(Model(), layout=second).layouts(3) == [second] * 3


def test_where_ddp_never_lays_out_again_its_first_buckets_are_right():
    unused = {"find_unused_parameters": True}
    first, second = Wrapped(Model(), **unused).layouts(2)
    assert first == second
    assert not lays_out_again(unused)
    assert lays_out_again({"find_unused_parameters": True, "static_graph": True})


@pytest.mark.parametrize("foreign", [((0, 1),), ((0,), (0, 1, 2, 3, 4, 5, 6, 7)), ((0, 99),)])
def test_a_layout_of_another_model_changes_nothing(foreign):
    with registered_in(foreign) as made:
        ddp = DistributedDataParallel(Model(), init_sync=False, bucket_cap_mb=CAP_MB)
    usual = ddp._build_params_for_reducer()[0]
    assert [id(p) for p in made[0]] == [id(p) for p in usual]


def test_a_static_graph_tells_no_layout_in_its_first_pass():
    """DDP gives every bucket the number 0 there, so the record must not make one up."""
    _, second, third, fourth = Wrapped(Model(), static_graph=True).layouts(4)
    assert Wrapped(Model(), static_graph=True).layouts(1) == [None]
    assert second != third == fourth, "it lays out behind its second pass: two are thrown away"


def test_the_constructor_of_ddp_is_as_it_was_afterwards():
    before = DistributedDataParallel._build_params_for_reducer
    with pytest.raises(ZeroDivisionError), registered_in(((0,),)):
        raise ZeroDivisionError
    assert DistributedDataParallel._build_params_for_reducer is before
