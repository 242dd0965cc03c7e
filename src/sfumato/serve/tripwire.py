"""The tripwire: checks that releases were protected as a model demands, so that a mistake is not a leak.

A device that sends clean images under the right name, or of the wrong size, or pixels instead of cells, gets
an error before anything is computed or stored. It does not stop a liar: people who want to send a clean image
can imitate the features checked here.

Nothing here refuses a release that fits its spec, except for noise: there an image has a chance of at
most FALSE_ALARM to be refused, whatever it shows. studies/guard.py at 2f64c651 measured it.
Whether a picture looks blurred or blackened is not checked.
"""

from sfumato.errors import DataError
from sfumato.protect.code import KIND as CODE
from sfumato.protect.parameters import cell_in_pixels
from sfumato.protect.release import Release
from sfumato.serve.served import Demand, Served, code_of
from sfumato.wire import AnyRelease, BitsHeader, FeatureHeader, Header, ImageHeader

FALSE_ALARM = 1e-6  # of one image, by all tests of its noise together

# By Demand.kind.
_HEADERS: dict[str, type] = {"pixels": ImageHeader, "numbers": FeatureHeader, "bits": BitsHeader}


class NotProtectedError(DataError):
    """An incoming release evidently breaks the model's demand: nothing of it was stored."""


def demand_of(served: Served, header: Header) -> Demand:
    """Check that a release names the protection of a model, which this returns.

    Raises:
        NotProtectedError: it names another one, or is of another artefact or size.
        SpecError: the noise is not one that codes of its kind have.
    """
    demand = served.demand
    name = demand.spec.partition(":")[0]
    # The device chooses the noise of a private feature or a code.
    chosen = demand.protection is None and header.spec.startswith(f"{name}:")
    if header.spec != demand.spec and not chosen:
        raise NotProtectedError(
            f"the model {served.name} takes releases of {demand.spec}: use this protection, and name it"
        )
    if demand.made_of is not None and header.made_of != demand.made_of:
        raise NotProtectedError(
            f"{header.spec} was released by another artefact than the model was made for: use the one whose "
            f"SHA-256 begins with {demand.made_of[:16]}"
        )
    if not isinstance(header, _HEADERS[demand.kind]):
        raise NotProtectedError(f"the model takes releases of {demand.spec}, and this is of {header.kind}")
    if isinstance(header, ImageHeader):
        if (size := (header.channels, *header.size)) != served.shape:
            own, wanted = ("x".join(map(str, sides)) for sides in (size, served.shape))
            cure = "resize before protecting"
            raise NotProtectedError(f"images of {own}, and the model's are {wanted}: {cure}")
        return demand
    bits, numbers = (header.bits, None) if isinstance(header, BitsHeader) else (None, header.dimension)
    if (bits or numbers) != served.dimension:
        raise NotProtectedError(
            f"a {name} of {bits or numbers} {demand.kind}, and the model's have {served.dimension}: use the "
            "artefact of the model"
        )
    if name == CODE:
        code_of(header.spec).check_makes(bits=bits, numbers=numbers)
    return demand


def check(release: AnyRelease, demand: Demand) -> None:
    """Refuse a release, accepted by `demand_of`, that evidently was not protected as demanded.

    Raises:
        NotProtectedError: it says the evidence, and the image.
    """
    protection = demand.protection
    if protection is None or not isinstance(release, Release):
        return  # any numbers may be a feature, and any bits a code
    cell = cell_in_pixels(protection, *release.size)
    if release.cell != cell:
        raise _refuse(demand, f"it has a value for each {_square(release.cell)}, not {_square(cell)}")
    if (release.shown is not None) != bool(getattr(protection, "has_shape", False)):
        raise _refuse(demand, "it is masked" if release.shown is not None else "it has no mask")
    reason = protection.suspicious(release, false_alarm=FALSE_ALARM)
    if reason is not None:
        raise _refuse(demand, reason)


def _refuse(demand: Demand, reason: str) -> NotProtectedError:
    return NotProtectedError(
        f"this is not a release of {demand.spec}: {reason}; protect images before they leave the device"
    )


def _square(cell: int) -> str:
    return "pixel" if cell == 1 else f"{cell}x{cell} pixels"
