"""A browser for the tests of this room, and the pages that it opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from extender.app.live_pages import look_at_cluster, providers
from extender.offline.state import ClusterState
from extender.ui import Choices, Site
from extender.web.app import PageServer
from tests.ui.chromium import ChromiumMissingError, chromium

EXAMPLE = Path(__file__).parents[2] / "extender/offline/example.yaml"
_PATIENCE_SECONDS = 30


class Browser:
    """A window, and the address that its pages are below."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str) -> None:
        self.driver.get(path if "://" in path else self.address + path)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def link(self, text: str) -> WebElement:
        return self.driver.find_element(By.LINK_TEXT, text)

    def follow(self, element: WebElement) -> None:
        """Clicks, and waits for the next page."""
        before = self.one("html").id
        element.click()
        self.until(lambda: self.one("html").id != before and self.run("return document.readyState") == "complete")

    def until(self, is_so: Any) -> None:
        WebDriverWait(self.driver, _PATIENCE_SECONDS, poll_frequency=0.05).until(lambda _: is_so())

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def command(self, name: str, **arguments: object) -> None:
        self.driver.execute_cdp_cmd(name, arguments)

    def complaints(self) -> list[str]:
        """Returns the console's messages: errors of the script and violations of the Content-Security-Policy."""
        return [line["message"] for line in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]  # of Selenium


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    try:
        found = chromium()
    except ChromiumMissingError as error:
        pytest.fail(str(error), pytrace=False)
    started = found.start()
    yield started
    started.quit()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Serves the example cluster as `extender view` does."""
    look = look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml", ["what could not be read"])
    with_pages = PageServer("127.0.0.1", 0, Site(look, Choices(others=providers())).pages())
    with_pages.start()
    yield f"http://127.0.0.1:{with_pages.port}/ui"
    with_pages.stop()


@pytest.fixture
def browser(driver: webdriver.Chrome, address: str) -> Iterator[Browser]:
    """A window of 1280 pixels in light colours; a test that leaves complaints in the console fails."""
    browser = Browser(driver, address)
    yield browser
    complaints = browser.complaints()
    for reset in ("Emulation.clearDeviceMetricsOverride", "Emulation.setEmulatedMedia"):
        browser.command(reset)
    browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert complaints == []
