"""What several tests of a rank begin with."""

import pytest
import torch.distributed as dist


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """A group of one."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()
