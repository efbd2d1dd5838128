"""Whether a script calls lastgood.start is read from its text, under every name that it may have there."""

import click
import pytest

from lastgood.cli.run import run
from lastgood.cli.run_mode import (
    ONLY_IN_THE_LOOP,
    Way,
    choose_way,
    describe_way,
    hang_after,
    unused_options,
)
from lastgood.training.observe.script import calls_start

WITH_START = [
    "import lastgood\nrun = lastgood.start(model=m)\n",
    "import lastgood as lg\ndef main():\n    return lg.start(model=m)\n",
    "from lastgood import start\nstart(model=m)\n",
    "from lastgood import start as begin\nbegin(model=m)\n",
]
WITHOUT = [
    "import torch\n",
    "import lastgood\nlastgood.attach()\n",
    "import threading\nthreading.Thread(target=f).start()\n",
    "# lastgood.start()\ntext = 'lastgood.start()'\n",
    "def start(): pass\nstart()\n",
    "this is no Python\n",
]


@pytest.mark.parametrize("text", WITH_START)
def test_a_call_of_start_is_found(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert calls_start(script)
    assert choose_way(script, None) is Way.LOOP
    assert choose_way(script, "act") is Way.LOOP
    assert choose_way(script, "observe") is Way.OBSERVE


@pytest.mark.parametrize("text", WITHOUT)
def test_what_is_no_call_of_start_is_not(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert not calls_start(script)
    assert choose_way(script, None) is Way.OBSERVE
    assert choose_way(script, "act") is Way.HARD


def test_a_module_beside_the_script_is_read_too(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from loop import go\ngo()\n")
    (tmp_path / "loop.py").write_text("import train, lastgood\ndef go():\n    lastgood.start()\n")
    assert calls_start(script)


def test_acting_on_an_unchanged_script_waits_longer_unless_told_otherwise():
    assert hang_after(None, Way.OBSERVE) == hang_after(None, Way.LOOP) == "30s"
    assert hang_after(None, Way.HARD) == "10min"
    assert hang_after("5s", Way.HARD) == "5s"


def test_options_without_an_effect_are_named_only_when_they_were_typed():
    assert unused_options(Way.OBSERVE, {"spares": True, "checkpoint_dir": False}) == ["--spares"]
    assert unused_options(Way.LOOP, {"spares": True}) == []


ALWAYS_USED = {
    "ranks", "mode", "ledger", "contract", "hang_after", "log_dir", "metrics", "run_id", "quiet",
}  # fmt: skip


def test_every_option_is_used_in_every_mode_or_said_not_to_be(tmp_path):
    """A new option has to be put into one of both lists."""
    shown = {o.name for o in run.params if isinstance(o, click.Option) and not o.hidden}
    assert shown == ALWAYS_USED | set(ONLY_IN_THE_LOOP)
    said = describe_way(Way.OBSERVE, tmp_path / "train.py", unused=["--snapshots"])
    assert said[1:] == ["not used while it is only observed: --snapshots"]
    said = describe_way(Way.HARD, tmp_path / "train.py", unused=["--snapshots"])
    assert said[1:] == ["not used without lastgood.start: --snapshots"]
