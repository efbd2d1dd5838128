"""A launch over several hosts that nobody named: one run for all its hosts and restarts, another for the next job."""

from lastgood.training.attach.place import NamedBy, Place, find_place
from lastgood.training.attach.warning import name_warning
from lastgood.training.rank.attach_name import name_launch


class Store:
    """Stands for the store that torchrun keeps as long as a launch lives."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        assert expected == ""
        return self.kept.setdefault(key, desired).encode()

    def connect(self, address: str, port: int) -> "Store":
        assert (address, port) == ("node-0", 29500)
        return self


def rank(number: int, *, restart: int = 0, store: bool = True, port: str = "29500", **more: str) -> dict[str, str]:  # fmt: skip
    """One rank a host, as torchrun starts it without `--rdzv-id`; each host has an error folder of its own."""
    return {
        "RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "node-0",
        "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": str(restart),
        "TORCHELASTIC_USE_AGENT_STORE": str(store), **more,
        "TORCHELASTIC_ERROR_FILE": f"/tmp/torchelastic_q/none_host{number}/attempt_{restart}/0/error.json",
    }  # fmt: skip


def named(environ: dict[str, str], store: Store) -> Place:
    return name_launch(find_place(environ, hostname="h"), environ, connect=store.connect)


def test_all_hosts_and_restarts_of_a_launch_are_one_run_and_the_next_launch_is_another():
    first, second = Store(), Store()
    places = [named(rank(number, restart=restart), first) for number in (0, 1) for restart in (0, 1)]  # fmt: skip
    assert len({place.run for place in places}) == 1
    assert {place.attempt for place in places} == {1, 2}
    other = named(rank(0), second)
    assert other.run != places[0].run
    assert other.run.startswith("attached.")
    assert {place.job for place in [*places, other]} == {"attached"}
    assert name_warning(other) is None


def test_a_name_that_was_given_asks_no_store():
    def nobody(_address: str, _port: int) -> Store:
        raise AssertionError("asked")

    for more in ({"LASTGOOD_RUN": "mine"}, {"TORCHELASTIC_RUN_ID": "job-9"}, {"SLURM_JOB_ID": "7"}):
        environ = {**rank(0), **more}
        place = find_place(environ, hostname="h")
        assert name_launch(place, environ, connect=nobody) is place
        assert place.named_by is NamedBy.JOB


def test_without_a_store_the_endpoint_of_the_start_is_the_name_and_a_restart_is_said_to_be_another_run():
    places = [find_place(rank(number, store=False, port="41234"), hostname="h") for number in (0, 1)]  # fmt: skip
    again = find_place(rank(0, store=False, port="41999", restart=1), hostname="h")
    assert {place.run for place in places} == {"attached.node-0-41234"}
    assert again.run == "attached.node-0-41999"
    warning = name_warning(again)
    assert warning is not None
    assert "--rdzv-id" in warning
    assert "another run" in warning


def test_a_store_that_does_not_answer_costs_the_name_and_is_said(capsys):
    def broken(_address: str, _port: int) -> Store:
        raise RuntimeError("timed out")

    environ = rank(1)
    place = name_launch(find_place(environ, hostname="h"), environ, connect=broken)
    assert place.run == "attached.node-0-29500"
    assert "the store of the launch did not answer: timed out" in capsys.readouterr().err
    assert "LASTGOOD_RUN" in (name_warning(place) or "")


def test_where_nothing_names_the_job_it_is_said_what_to_set():
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}  # fmt: skip
    for environ, words in (
        (by_hand, "LASTGOOD_RUN"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "JOB_NAME"),
    ):
        place = find_place(environ, hostname="h")
        assert place.named_by is NamedBy.NOTHING
        assert words in (name_warning(place) or "")
    other = find_place({**by_hand, "MASTER_ADDR": "b"}, hostname="h")
    assert other.run != find_place(by_hand, hostname="h").run
