"""The pages in a real Chromium: opened, clicked through, with the keyboard, without a script, on a narrow screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from extender import Cluster
from extender.app.live_pages import look_at_cluster, look_at_recording, providers
from extender.offline.state import ClusterState
from extender.ui import Choices, Site
from extender.web.app import PageServer, PrivatePages
from tests.builders import make_node, make_pod
from tests.offline.recording.recorded import record_timeline
from tests.ui.chromium import ChromiumMissingError, chromium

pytestmark = pytest.mark.browser

EXAMPLE = Path(__file__).parents[2] / "extender/offline/example.yaml"
_PATIENCE_SECONDS = 30
PENDING, FITS = "ml/recommend-7f6d-v4nzs", "shop/api-58b9c-w8x5n"
PAGES = (
    "/pending",
    f"/pod?pod={PENDING}",
    f"/pod?pod={FITS}",
    "/nodes",
    f"/node?node=gpu-a1&pod={PENDING}",
    "/compare",
)
HOSTILE = '"><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e'


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
    with_pages = PageServer("127.0.0.1", 0, PrivatePages(Site(look, Choices(others=providers())).pages()))
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


def test_from_the_list_of_causes_to_a_pod_and_its_json(browser: Browser) -> None:
    browser.open("")
    assert browser.one("h1").text == "6 pending pods"
    assert browser.texts("details.cause summary") == [
        "Insufficient example.com/gpu: 1 pod",
        "Insufficient memory: 1 pod",
        "fits on a node now: 4 pods",
    ]
    browser.follow(browser.link(PENDING))
    assert "does not fit" in browser.one("h1").text
    assert "0/20 nodes are available" in browser.one(".verdict p").text
    assert browser.texts("#changes b")[0] == "request no example.com/gpu"
    assert browser.texts("#preemption tr.chosen td:first-child") == ["gpu-b1"]
    browser.follow(browser.one("#reasons a.number"))
    assert browser.one("pre").text.strip() == "15"


def test_a_pod_that_fits_shows_its_scores_and_leads_to_a_node(browser: Browser) -> None:
    browser.open(f"/pod?pod={FITS}")
    assert browser.one("#scores h2").text == "Why general-c2"
    assert browser.texts(".waterfall tbody tr")[0].split() == ["ImageLocality", "weight", "1", "9", "0", "+9"]
    assert len(browser.texts("#candidates tbody tr")) == 8
    browser.follow(browser.one("#candidates tr.chosen a"))
    assert browser.one("h1").text == "node general-c2"
    assert browser.texts("#filters h2") == [f"Verdicts of the filters on {FITS}"]
    assert browser.texts("tr.refused") == []


def test_the_map_describes_the_node_under_the_pointer_and_the_arrow_keys(browser: Browser) -> None:
    browser.open("/nodes")
    (cells, *_) = browser.driver.find_elements("css selector", "svg.cells")
    recorded = browser.one("figure.map .told")
    browser.run("document.querySelector('svg.cells').focus()")
    browser.until(lambda: recorded.text.startswith("arm-a1: 12.7 of 15.8 cpu free"))
    cells.send_keys(Keys.ARROW_RIGHT)
    browser.until(lambda: recorded.text.startswith("batch-a1: "))
    browser.follow(_pressing(cells, Keys.ENTER))
    assert browser.one("h1").text == "node batch-a1"


def _pressing(element: Any, key: str) -> Any:
    """An element that is "clicked" by a key."""

    class Pressed:
        def click(self) -> None:
            element.send_keys(key)

    return Pressed()


def _square(browser: Browser, name: str) -> Any:
    """The square of the map with this name; it is clicked below the name."""
    names = browser.driver.find_elements("css selector", "#map svg.cells text")
    element = next(each for each in names if each.text == name)

    class Square:
        def click(self) -> None:
            ActionChains(browser.driver).move_to_element_with_offset(element, 0, 20).click().perform()

    return Square()


def test_a_click_on_a_named_square_of_the_map_opens_the_node(browser: Browser) -> None:
    browser.open(f"/pod?pod={FITS}")
    browser.follow(_square(browser, "general-a3"))
    assert browser.one("h1").text == "node general-a3"
    assert browser.one("#filters h2").text == f"Verdicts of the filters on {FITS}"


def test_the_nodes_are_coloured_by_another_resource_and_by_a_verdict(browser: Browser) -> None:
    browser.open("/nodes")
    assert browser.one("figcaption").text == "free cpu"
    browser.one("input[value='memory']").click()
    browser.follow(browser.one("form.choice button"))
    assert browser.one("figcaption").text == "free memory"
    browser.one("input[name='by'][value='']").click()
    browser.one("input[name='pod']").send_keys(FITS)
    browser.follow(browser.one("form.choice button"))
    assert browser.one("figcaption").text == f"verdict for {FITS}"
    assert "fits best: 1" in browser.texts(".legend li")


def test_two_configurations_side_by_side(browser: Browser) -> None:
    browser.open("/compare")
    assert browser.one("h1").text == "defaults and ClusterAutoscalerProvider"
    assert browser.one("#moved h2").text == "3 pods end elsewhere"
    assert browser.texts("#plugins th[scope=row]")[0] == "NodeResourcesFit"
    browser.one("option:not([selected])").click()
    browser.follow(browser.one("form.choice button"))
    assert browser.one("h1").text == "defaults and DefaultProvider"
    assert browser.one("#moved h2").text == "0 pods end elsewhere"


def test_the_bare_address_leads_to_the_pending_pods(browser: Browser) -> None:
    browser.open(browser.address.removesuffix("/ui"))
    assert browser.one("h1").text == "6 pending pods"
    assert browser.one("footer").text.startswith("extender ")


def test_the_keyboard_finds_in_a_list(browser: Browser) -> None:
    browser.open(f"/pod?pod={PENDING}")
    browser.one("body").send_keys("/")
    browser.driver.switch_to.active_element.send_keys("memory-")
    assert browser.texts("#refused tbody tr:not([hidden]) td:first-child") == ["memory-a1", "memory-b1", "memory-c1"]


def test_without_a_script_lists_links_and_forms_work(browser: Browser) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open("/pending")
    browser.follow(browser.link(PENDING))
    assert "does not fit" in browser.one("h1").text
    assert len(browser.texts("#refused tbody tr")) == 20
    assert browser.texts("#map svg.cells path") != []
    browser.follow(browser.link("Nodes"))
    browser.one("input[name='find']").send_keys("gpu")
    browser.follow(browser.one("form.choice button"))
    assert browser.texts("tbody td:first-child") == ["gpu-a1", "gpu-b1"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_narrow_screen_and_both_schemes(browser: Browser, path: str, scheme: str) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=True)
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(path)
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


def test_a_slider_leads_through_a_recording(browser: Browser, tmp_path: Path) -> None:
    record_timeline(tmp_path / "names.jsonl.gz", "names")
    site = Site(look_at_recording(tmp_path / "names.jsonl.gz", None), Choices()).pages()
    server = PageServer("127.0.0.1", 0, PrivatePages(site))
    server.start()
    try:
        browser.open(f"http://127.0.0.1:{server.port}/ui/nodes?step=0")
        assert browser.one("h1").text == "0 nodes"
        browser.follow(_pressing(browser.one("form.steps input[type=range]"), Keys.END))
        assert browser.one("form.steps output").text == "220 of 220"
        assert browser.one("h1").text != "0 nodes"
        browser.follow(browser.link("previous"))
        assert browser.one("form.steps output").text == "219 of 220"
        browser.follow(browser.link("Steps"))
        assert browser.texts("tr.chosen td:first-child") == ["219"]
    finally:
        browser.driver.get("about:blank")  # a connection that is kept would keep the server
        server.stop()


def test_a_file_needs_no_other_and_its_numbers_lead_to_its_json(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "pod.html"
    page.write_text(Cluster.load(EXAMPLE).explain(PENDING).to_html())
    browser.open(page.as_uri())
    assert not browser.one("#json-reasons").is_displayed()
    browser.one("#reasons a.number").click()
    browser.until(lambda: '"reason": "Insufficient example.com/gpu"' in browser.one("#json-reasons").text)
    browser.run("document.querySelector('svg.cells').focus()")
    browser.until(lambda: browser.one("figure.map .told").text.startswith("arm-a1: "))


@pytest.mark.parametrize("answer", ["explain", "simulate", "capacity", "compare"])
def test_names_from_a_cluster_are_text(browser: Browser, tmp_path: Path, answer: str) -> None:
    nodes = [make_node(f"n{HOSTILE}{i}").zone(HOSTILE).label({HOSTILE: HOSTILE}).taint(HOSTILE).obj() for i in range(3)]
    pod = make_pod(HOSTILE, HOSTILE).req(cpu="1").gate(HOSTILE).node_selector({HOSTILE: "no"}).obj()
    cluster = Cluster.from_objects([*nodes, pod])
    answers: dict[str, Callable[[], Any]] = {
        "explain": lambda: cluster.explain(f"{HOSTILE}/{HOSTILE}"),
        "simulate": cluster.simulate,
        "capacity": lambda: cluster.capacity([make_pod("t").obj()]),
        "compare": cluster.compare,
    }
    page = tmp_path / "page.html"
    page.write_text(answers[answer]().to_html())
    browser.open(page.as_uri())
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert "<script>window.hacked=1</script>" in browser.run("return document.body.textContent")
    assert "\u202e" not in browser.run("return document.querySelector('main').textContent").partition("JSON")[0]
