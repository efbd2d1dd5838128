"""What every test may ask for: a quiet environment, the command line in-process, golden files, a browser."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Two shared cores: a deadline per example would measure the neighbours. The 60 s limit per test stays.
settings.register_profile(
    "lastgood", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", parent=settings.get_profile("lastgood"), max_examples=2000)
settings.load_profile(os.environ.get("LASTGOOD_HYPOTHESIS_PROFILE", "lastgood"))

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden/*.json from what comes out",
    )


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test writes to a person's ledger or depends on a person's terminal."""
    for name in ("LASTGOOD_DEBUG", "LASTGOOD_LEDGER", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NO_COLOR", "1")


class CliResult(NamedTuple):
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., CliResult]:
    """Run `lastgood ARGUMENTS` in this process, exactly as the console script does."""
    from lastgood.cli.main import main

    def call(*arguments: str | Path) -> CliResult:
        capsys.readouterr()
        exit_code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return CliResult(exit_code, captured.out, captured.err)

    return call


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """Compare a JSON value with tests/golden/NAME.json; `--update-golden` rewrites the file instead."""

    def check(name: str, actual: Any) -> None:
        path = GOLDEN / f"{name}.json"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(actual, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            return
        assert path.exists(), (
            f"{path} is missing: run pytest with --update-golden and read the diff"
        )
        assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(actual))

    return check


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of a Chromium that Playwright can drive; skips, with the reason, where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    pytest.skip("no Chromium on this machine: apt-get install chromium")


@pytest.fixture
def chromium_page(chromium_path: str) -> Iterator[Any]:
    """An empty page of a headless browser without network."""
    playwright_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        try:
            context = browser.new_context(offline=True, viewport={"width": 1280, "height": 1600})
            yield context.new_page()
        finally:
            browser.close()
