"""What a pod's claims ask for, made ready for the search. Source: structured validateDeviceRequest, requestAccessor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from extender.devices.search.constraints import AttributeConstraint, constraint_of
from extender.model.devices.claims import ALL, EXACT_COUNT, DeviceRequest, ExactDeviceRequest, ResourceClaim
from extender.model.devices.slices import DeviceClass, DeviceSelector, DeviceToleration
from extender.model.quantity import Quantity


class AllocationError(Exception):
    """Why devices cannot be allocated at all: something is wrong with a claim, a class or a pool.

    `claim` is the index of the claim that `text` goes on about, None where the text stands for itself.
    """

    def __init__(self, text: str, claim: int | None = None) -> None:
        super().__init__(text)
        self.text, self.claim = text, claim


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A request, or one of the alternatives of a prioritized list.

    Attributes:
        name: of the request, `request/subrequest` of an alternative.
        own_name: without the part before the slash.
        parent: the request's name, that of the whole list for an alternative.
        fault: what makes it impossible to fulfil, if anything does.
    """

    claim: int
    name: str
    own_name: str
    parent: str
    request: ExactDeviceRequest
    device_class: DeviceClass | None
    fault: str = ""
    takes_all: bool = False
    count: int = 0
    admin: bool = False
    tolerations: Sequence[DeviceToleration] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def is_alternative(self) -> bool:
        """Whether it is one of a prioritized list."""
        return self.name != self.parent

    def error(self, text: str) -> AllocationError:
        """What is wrong with it, as an error."""
        return AllocationError(f", request {self.own_name}: {text}", self.claim)

    @property
    def selectors(self) -> Iterator[tuple[str, int, str]]:
        """(whose selector it is, its index there, CEL expression): the class' selectors and then the request's."""
        if self.device_class is not None:
            for index, selector in enumerate(self.device_class.spec.selectors or ()):
                yield self.device_class.name, index, _expression(selector)
        for index, selector in enumerate(self.request.selectors or ()):
            yield "", index, _expression(selector)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimAsk:
    """What one claim asks for: by request, its alternatives (one, unless it is a prioritized list)."""

    requests: tuple[tuple[Ask, ...], ...]
    constraints: tuple[AttributeConstraint, ...]
    fault: str = ""


Question = tuple[ClaimAsk, ...]


def question_of(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Question:
    """What the claims ask for together."""
    return tuple(_claim_ask(index, claim, classes) for index, claim in enumerate(claims))


def key_of(claims: Sequence[ResourceClaim]) -> bytes:
    """Equal for claims that ask for the same."""
    return msgspec.json.encode([(claim.spec.devices.requests, claim.spec.devices.constraints) for claim in claims])


def _claim_ask(index: int, claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimAsk:
    constraints = [constraint_of(constraint) for constraint in claim.spec.devices.constraints or ()]
    fault = ""
    if None in constraints:
        fault = f", constraint #{constraints.index(None)}: empty constraint (unsupported constraint type?)"
    return ClaimAsk(
        tuple(tuple(_asks(index, request, classes)) for request in claim.requests),
        tuple(constraint for constraint in constraints if constraint is not None),
        fault,
    )


def _asks(claim: int, request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> Iterator[Ask]:
    if request.first_available:
        for sub in request.first_available:
            yield _ask(claim, sub, sub.name, request.name, f"{request.name}/{sub.name}", classes)
    else:
        exactly = request.exactly or ExactDeviceRequest()
        yield _ask(claim, exactly, request.name, request.name, request.name, classes)


def _ask(
    claim: int, request: ExactDeviceRequest, own_name: str, parent: str, name: str, classes: Mapping[str, DeviceClass]
) -> Ask:
    mode = request.allocation_mode or EXACT_COUNT
    return Ask(
        claim,
        name,
        own_name,
        parent,
        request,
        classes.get(request.device_class_name),
        fault=_fault(request, mode, classes),
        takes_all=mode == ALL,
        count=request.count or 1,
        admin=bool(request.admin_access),
        tolerations=request.tolerations or (),
        capacity=(request.capacity.requests if request.capacity else None) or {},
    )


def _fault(request: ExactDeviceRequest, mode: str, classes: Mapping[str, DeviceClass]) -> str:
    if request.derived_attributes:
        return "cannot handle request with derived attributes, the feature is disabled"
    for index, selector in enumerate(request.selectors or ()):
        if selector.cel is None:
            return f"selector #{index}: CEL expression empty (unsupported selector type?)"
    class_name = request.device_class_name
    if not class_name:
        return "missing device class name (unsupported request type?)"
    if class_name not in classes:
        missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
        return f"could not retrieve device class {class_name}: {missing}"
    return "" if mode in (EXACT_COUNT, ALL) else f"unsupported count mode {mode}"


def _expression(selector: DeviceSelector) -> str:
    return selector.cel.expression if selector.cel else ""
