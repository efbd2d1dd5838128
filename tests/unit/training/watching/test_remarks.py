"""What ranks remark at the start is recorded once."""

from types import SimpleNamespace

from lastgood.training import control
from lastgood.training.watching.remarks import Remarks


def test_a_remark_of_several_ranks_is_recorded_once():
    recorded = []
    recorder = SimpleNamespace(record=lambda kind, **fields: recorded.append((kind, fields)))
    remarks = Remarks(SimpleNamespace(recorder=recorder))
    for rank, text in ((1, "the loader x"), (0, "the loader x"), (0, "the loader y")):
        remarks.hear(control.Remark(rank=rank, text=text, next="write it so"))
    assert recorded == [
        ("annotation", {"ranks": (1,), "body": {"text": "the loader x", "next": "write it so"}}),
        ("annotation", {"ranks": (0,), "body": {"text": "the loader y", "next": "write it so"}}),
    ]
