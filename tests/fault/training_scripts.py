"""Training scripts that fail in ways of their own; a mark in a folder keeps each failure to one time."""

DYING = """
import hashlib, os, signal, sys, time, torch, lastgood
from pathlib import Path

marks, steps = Path(sys.argv[1]), int(sys.argv[2])

def once(name):
    try:
        os.close(os.open(marks / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def loader(rank, world):
    if rank == 1 and once("start"):
        os.kill(os.getpid(), signal.SIGKILL)
    return list(torch.randn(steps + 9, 4, 8, generator=torch.Generator().manual_seed(5)))

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
run = lastgood.start(model=model, optimizer=optimizer, loader=loader)
for batch in run.batches(steps=steps):
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
        if step.number == 8 and run.rank == 0 and once("exit"):
            sys.exit(0)
    if run.steps_done == 16:
        with run.section("eval"):
            time.sleep(0.05)
            if run.rank == 2 and once("section"):
                os.kill(os.getpid(), signal.SIGKILL)
    if run.steps_done == 24:
        with run.section("wait", limit="4min"):
            while not (marks / "refilled").exists():
                time.sleep(0.02)
    if run.steps_done == 32 and run.rank == 0 and once("between"):
        raise KeyError("between two steps")
    time.sleep(0.03)
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
(marks / f"weights-{run.rank}").write_text(hashlib.sha256(weights).hexdigest())
"""

WRONG = """
import os, signal, sys, time, torch, lastgood
from pathlib import Path

marks = Path(sys.argv[1])

def once(name):
    try:
        os.close(os.open(marks / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(4, 8)] * 99)
for batch in run.batches():
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
        if step.number == 6 and run.rank == 0 and once("long"):
            try:
                time.sleep(600)
            except BaseException as ended:
                (marks / "ended").write_text(type(ended).__name__)
                raise
        if step.number == 6 and run.rank == 1 and once("death"):
            while not (marks / "long").exists():
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        if step.number == 14 and once(f"everywhere-{run.rank}"):
            raise OSError("the file server is away")
        if step.number == 22:
            raise KeyError("a bug of the script")
    time.sleep(0.02)
"""

OWN_COLLECTIVES = """
import hashlib, os, signal, sys, time, torch, torch.distributed as dist, lastgood
from pathlib import Path

marks, where = Path(sys.argv[1]), sys.argv[2]

def die_once():
    try:
        os.close(os.open(marks / "death", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(4, 8)] * 40)
groups = {}
for batch in run.batches():
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
        if where == "subgroup":
            if run.generation not in groups:
                groups[run.generation] = dist.new_group([0, 1, 2])
            if step.number == 12 and run.rank == 1:
                die_once()
            dist.all_reduce(torch.ones(1), group=groups[run.generation])
    if where == "section" and run.steps_done == 12:
        with run.section("eval", limit="30s"):
            if run.rank == 1:
                die_once()
            dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
(marks / f"weights-{run.rank}").write_text(hashlib.sha256(weights).hexdigest())
"""
