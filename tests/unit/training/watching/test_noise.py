"""What becomes the tolerance of a job whose steps do not repeat."""

from types import SimpleNamespace

from lastgood.training import control
from lastgood.training.watching.noise import hear_noise


class Supervisor:
    def __init__(self):
        self.tolerance = None
        self.recorded = []
        self.life = SimpleNamespace(tolerate=lambda bound: setattr(self, "on_page", bound))
        self.recorder = SimpleNamespace(record=lambda kind, **fields: self.recorded.append(fields))
        self.on_page = None


def hear(supervisor, *noises):
    for probe, noise in enumerate(noises, 1):
        hear_noise(
            supervisor,
            control.NoiseMeasured(
                rank=0, step=2, probe=probe, is_bitwise=noise == 0, noise=float(noise).hex()
            ),
        )


def test_the_bound_is_four_times_the_largest_probe_whatever_came_last():
    supervisor = Supervisor()
    hear(supervisor, 1e-6, 3e-5, 0, 1e-7)
    assert supervisor.tolerance == (1.2e-4).hex() == supervisor.on_page.hex()
    assert [fields["body"]["probe"] for fields in supervisor.recorded] == [1, 2, 3, 4]


def test_a_job_that_repeats_bit_for_bit_has_no_tolerance():
    supervisor = Supervisor()
    hear(supervisor, 0)
    assert supervisor.tolerance is None
    assert supervisor.on_page is None
