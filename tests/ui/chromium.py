"""A Chromium and its driver: those on the PATH, or Debian's packages, unpacked into the cache without root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PACKAGES = ("chromium-headless-shell", "chromium-driver")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,1000")
_FETCH_SECONDS = 240
_ADVICE = (
    "tests of the page need Chromium and chromedriver: put both on the PATH "
    "(apt-get install chromium chromium-driver), "
    "or leave these tests out by name (-m 'not browser')"
)


class ChromiumMissingError(Exception):
    """There is no Chromium, and none can be had; the message says what to do."""


@dataclass(frozen=True)
class Chromium:
    """A browser, its driver, and the folders of libraries that the system lacks."""

    browser: Path
    driver: Path
    libraries: tuple[Path, ...] = ()

    def start(self) -> webdriver.Chrome:
        """Starts a window without a screen, whose console is kept."""
        options = webdriver.ChromeOptions()
        options.binary_location = str(self.browser)
        for flag in _FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        libraries = ":".join([*map(str, self.libraries), os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
        service = webdriver.ChromeService(str(self.driver), env={**os.environ, "LD_LIBRARY_PATH": libraries})
        return webdriver.Chrome(options=options, service=service)


def chromium() -> Chromium:
    """Returns the browser on the PATH, or the one in the cache, which is filled first.

    Raises ChromiumMissingError, which says what to do: tests are left out by an explicit choice alone.
    """
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    driver = shutil.which("chromedriver")
    if browser and driver:
        return Chromium(Path(browser), Path(driver))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "extender-chromium"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "root").exists():
            _fetch(cache)
    root = cache / "root"
    folders = {path.parent for path in root.glob("usr/lib/*-linux-*/**/*.so*")}
    return Chromium(root / "usr/lib/chromium/chromium-headless-shell", root / "usr/bin/chromedriver", tuple(folders))


def _fetch(cache: Path) -> None:
    """Unpacks the packages with what they need and the system lacks; apt checks their signatures."""
    work = cache / "work"
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("lists/partial", "apt/archives/partial", "packages"):
        (work / folder).mkdir(parents=True)
    # Lists and archives of our own, so that no right to the system's is needed.
    options = ("Dir::State::lists", work / "lists"), ("Dir::Cache", work / "apt"), ("Debug::NoLocking", 1)
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options)]
    _run([*apt, "update"], work)
    planned = _run([*apt, "install", "-s", "--no-install-recommends", _PACKAGES[0]], work)
    needed = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    _run([*apt, "download", *{*needed, *_PACKAGES}], work / "packages")
    for package in sorted((work / "packages").glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(work / "root")], work)
    (work / "root").rename(cache / "root")
    shutil.rmtree(work)


def _run(command: list[str], directory: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=True, timeout=_FETCH_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or "").strip().splitlines()
        raise ChromiumMissingError(f"{_ADVICE}; {' '.join([str(error), *output[-1:]])}") from None
    return done.stdout
