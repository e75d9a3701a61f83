"""Why a dev stack is not there; each text says what to do."""

from processor.core.errors import ProcessorError


class DevStackFailed(ProcessorError):
    """A part did not start, died or cannot be reached."""

    code = "devstack_failed"


class AddressTaken(DevStackFailed):
    """Another process listens on the port that was chosen; another port may work."""

    code = "devstack_address_taken"


class JarRefused(ProcessorError):
    """A jar of the broker is missing or is not the one this project was tested with."""

    code = "devstack_jar_refused"


class PackageMissing(ProcessorError):
    """A package of the `devstack` extra is not installed."""

    code = "devstack_package_missing"
