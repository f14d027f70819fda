"""CEL selectors: their verdicts on devices, and how often they are evaluated."""

from __future__ import annotations

import sys
from itertools import count, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.devices.cel import device_selectors
from extender.devices.cel.device_selectors import SelectorError, matches
from extender.devices.cel.values import Semver
from extender.devices.inventory import PoolDevice
from extender.errors import DeadlineExceeded
from extender.model.devices import Device, DeviceAttribute, ResourceSlice
from extender.runtime.clock import Deadline, ManualClock
from tests.builders import Object, make_device, make_slice, version

DRIVER = "gpu.example.com"
SELECTORS = 1500
NEVER_ASKED = count(1)
DEVICE = make_device(
    "gpu-0",
    {
        "model": "a100",
        "index": 3,
        "mig": True,
        "driverVersion": version("1.10.0-rc.1"),
        "other.example.com/rack": "r1",
        f"{DRIVER}/numa": 0,
    },
    {"memory": "40Gi"},
)


def device(spec: Object = DEVICE) -> PoolDevice:
    of_slice = msgspec.convert(make_slice("s", DRIVER, "pool", spec), ResourceSlice)
    return PoolDevice(msgspec.convert(spec, Device), of_slice, ())


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        pytest.param(f'device.driver == "{DRIVER}"', True, id="driver"),
        pytest.param("device.allowMultipleAllocations", False, id="allowMultipleAllocations"),
        pytest.param('ATTRIBUTES.model == "a100"', True, id="string"),
        pytest.param("ATTRIBUTES.index > 2 && ATTRIBUTES.index < 4", True, id="int"),
        pytest.param("ATTRIBUTES.mig", True, id="bool"),
        pytest.param("ATTRIBUTES.numa == 0", True, id="name with the driver's domain"),
        pytest.param('device.attributes["other.example.com"].rack == "r1"', True, id="another domain"),
        pytest.param("ATTRIBUTES.?nonesuch.orValue(7) == 7", True, id="optional"),
        pytest.param("has(ATTRIBUTES.nonesuch)", False, id="has"),
        pytest.param('has(device.attributes["nonesuch.example.com"].model)', False, id="has in an unknown domain"),
        pytest.param('"nonesuch.example.com" in device.attributes', False, id="unknown domains are no members"),
        pytest.param(f'"{DRIVER}" in device.attributes', True, id="known domains are"),
        pytest.param('"model" in ATTRIBUTES', True, id="membership"),
        pytest.param("device.attributes[device.driver].index == 3", True, id="computed domain"),
        pytest.param(f'device.attributes.exists(d, d == "{DRIVER}")', True, id="macro"),
        pytest.param(f'cel.bind(a, device.attributes["{DRIVER}"], a.model == "a100" && a.mig)', True, id="bind"),
        pytest.param('ATTRIBUTES.model.matches("^a[0-9]+$")', True, id="regular expression"),
        pytest.param('ATTRIBUTES.model.substring(1) == "100"', True, id="string function"),
        pytest.param('CAPACITY.memory == quantity("40960Mi")', True, id="equal quantities"),
        pytest.param('CAPACITY.memory.compareTo(quantity("41G")) > 0', True, id="compared quantities"),
        pytest.param('CAPACITY.memory.sub(quantity("1Gi")).isLessThan(quantity("39.5Gi"))', True, id="subtracted"),
        pytest.param("CAPACITY.memory.add(1).asInteger() == 42949672961", True, id="added"),
        pytest.param("CAPACITY.memory.asApproximateFloat() > 4e10", True, id="as a float"),
        pytest.param('isQuantity("1Qi")', False, id="no quantity"),
        pytest.param('ATTRIBUTES.driverVersion.isLessThan(semver("1.10.0"))', True, id="a pre-release comes before"),
        pytest.param(
            'ATTRIBUTES.driverVersion.isGreaterThan(semver("1.9.9"))', True, id="numbers are compared as such"
        ),
        pytest.param('ATTRIBUTES.driverVersion == semver("1.10.0-rc.1+build")', True, id="build metadata do not count"),
        pytest.param('ATTRIBUTES.driverVersion.minor() == semver("v1.10", true).minor()', True, id="normalized"),
        pytest.param("ATTRIBUTES.model == 5", False, id="types that differ are not equal"),
    ],
)
def test_verdicts(expression: str, verdict: bool) -> None:
    written_out = expression.replace("ATTRIBUTES", f'device.attributes["{DRIVER}"]')
    assert matches(written_out.replace("CAPACITY", f'device.capacity["{DRIVER}"]'), device()) is verdict


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param('device.attributes["x"].y', "CEL runtime error: no such key: y.", id="no such key"),
        pytest.param("device.driver < 1", "CEL compile error: .* no matching overload for '<'", id="types"),
        pytest.param('quantity("x").isInteger()', "CEL runtime error: quantity parse error", id="no quantity"),
        pytest.param('quantity("1").compareTo(semver("1.0.0")) == 0', "no matching overload", id="apples and oranges"),
        pytest.param('quantity("1") == dyn("1")', "CEL runtime error: no such overload", id="a quantity and a text"),
        pytest.param("dyn(device.driver)", "could not be converted to bool", id="no boolean"),
        pytest.param("1 + 1", "CEL compile error: must evaluate to bool or the unknown type, not int", id="never one"),
        pytest.param("device.", "CEL compile error: compilation failed: ERROR", id="no expression"),
        pytest.param("nonesuch(1)", "undeclared reference to 'nonesuch'", id="no function"),
    ],
)
def test_errors(expression: str, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        matches(expression, device())


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        pytest.param({"v": version("1.0")}, "attribute v: parse semantic version", id="version"),
        pytest.param({"v": {}}, "attribute v: unsupported attribute value", id="unknown kind"),
    ],
)
def test_a_device_with_wrong_attributes_fails_every_selector(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        matches("true", device(make_device("d", attributes)))


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f'device.attributes["{DRIVER}"].model == "a100"', id="attribute"),
        pytest.param(f"device.capacity['{DRIVER}'].memory.isInteger()", id="capacity"),
        pytest.param(f'device.attributes["{DRIVER}"].?model.orValue("") == "a100"', id="optional"),
        pytest.param(f'"model" in device.attributes["{DRIVER}"]', id="the whole domain"),
        pytest.param("device.attributes.all(d, size(device.attributes[d]) > 1)", id="everything"),
    ],
)
@given(st.lists(st.sampled_from(["a100", "t4", None]), min_size=1), st.sampled_from(["40Gi", "500m"]))
def test_a_shared_verdict_is_the_devices_own(expression: str, models: list[str | None], memory: str) -> None:
    """Verdicts are shared by devices with the same values; an expression that is new shares none."""
    for serial, model in enumerate(models):
        attributes = {"serial": serial} | ({} if model is None else {"model": model})
        asked = device(make_device("d", attributes, {"memory": memory}))
        assert _verdict(expression, asked) == _verdict(f"{expression} && {next(NEVER_ASKED)} > 0", asked)


class CountedAttributes(dict[str, DeviceAttribute]):
    """Attributes that count how often an evaluation reads all of them."""

    evaluations = 0

    def items(self) -> Any:
        self.evaluations += 1
        return super().items()


def test_many_selectors_of_a_pod_are_evaluated_once_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads a value that no two devices have in common, and they are asked device by device."""
    monkeypatch.setattr(device_selectors, "_cache", device_selectors._SelectorCache())  # full of other tests' selectors
    devices = []
    for serial in range(5):
        made = device(make_device(f"d{serial}", {"serial": serial}))
        counted = CountedAttributes(made.spec.attributes or {})
        devices.append(PoolDevice(msgspec.structs.replace(made.spec, attributes=counted), made.slice, ()))
    for _ in range(2):
        for asked in devices:
            for number in range(SELECTORS):
                assert matches(f'device.attributes["{DRIVER}"].serial >= 0 && {number} < {SELECTORS}', asked)
    looks_for_faults = 1
    evaluations = [made.spec.attributes.evaluations for made in devices]  # type: ignore[union-attr]  # counted above
    assert evaluations == [SELECTORS + looks_for_faults] * 5


def test_the_caches_of_expressions_and_verdicts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who may create a claim may write expressions."""
    monkeypatch.setattr(device_selectors, "_MAX_SELECTORS", 400)
    monkeypatch.setattr(device_selectors, "_cache", device_selectors._SelectorCache())
    asked = device()
    for number in range(500):
        assert matches(f"{number} < 500", asked)
        assert not matches(f"{number} > 500", asked)
    assert len(device_selectors._cache.selectors) <= 400
    assert sys.getsizeof(asked.verdicts_of(device_selectors._cache)) < 10_000


def test_an_evaluation_ends_at_the_deadline() -> None:
    """27,000 iterations; the deadline is read about every 1,000 steps."""
    numbers = str(list(range(30)))
    expression = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"
    clock = SteppingClock()
    with pytest.raises(DeadlineExceeded, match="a CEL selector was evaluated"):
        matches(expression, device(), Deadline(clock, 1.0))
    assert clock.looks < 5
    assert matches(expression, device())  # nothing was kept of the first evaluation


class SteppingClock(ManualClock):
    """Advances by 0.5 s each time it is read."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        self.advance(0.5)
        return super().monotonic()


def _verdict(expression: str, of_device: PoolDevice) -> bool | str:
    try:
        return matches(expression, of_device)
    except SelectorError as error:
        return str(error)


def semver(text: str) -> Semver:
    parsed = Semver.parse(text)
    assert parsed is not None
    return parsed


@given(st.tuples(*[st.integers(0, 12)] * 3), st.tuples(*[st.integers(0, 12)] * 3))
def test_releases_are_ordered_by_their_numbers(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    first, second = (semver(".".join(map(str, numbers))) for numbers in (left, right))
    assert (first < second, first > second) == (left < right, left > right)


def test_precedence_as_semver_org_has_it() -> None:
    pre_releases = ("alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1")
    versions = [*(semver(f"1.0.0-{each}") for each in pre_releases), semver("1.0.0")]
    assert all(first < second for first, second in pairwise(versions))
    assert not any(map(Semver.parse, ("1", "1.0", "01.0.0", "1.0.0-01", "1.0.0-", "v1.0.0", "1.0.0+")))
