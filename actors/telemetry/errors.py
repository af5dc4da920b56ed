"""An error as telemetry names it: by its class. Its text may contain data of the payload."""

ERROR_TYPES_MAX = 20  # Counted separately by one actor. Each is a series for each kind, wherever metrics go.
OTHER = "_OTHER"  # The conventions' value for an error that is not named.
GIVEN_UP = "given_up"  # The handler ignored its cancellation; it has raised nothing yet.

# A field of log records whose exception the user's code raised: not a fault of the product.
USERS_ERROR = "of_users_code"

_QUALNAME, _DICT = type.__dict__["__qualname__"], type.__dict__["__dict__"]


def error_type(error: BaseException) -> str:
    """Return OpenTelemetry's `error.type`: `ConnectionError`, or with its module `shop.CardRefused`.

    Reads the class without its metaclass, which is users' code: the caller holds locks, and must not fail.
    """
    name: str = _QUALNAME.__get__(type(error))
    module = _DICT.__get__(type(error)).get("__module__")  # Classes of the interpreter's own have none.
    return f"{module}.{name}" if isinstance(module, str) else name


class ErrorTypes:
    """The error types that are counted separately: the first twenty, and one for the others."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[str] = set()

    def counted(self, found: str) -> str:
        """Return the type under which an error is counted; "", which means no error, stays."""
        if found and found not in self._known:
            if len(self._known) == ERROR_TYPES_MAX:
                return OTHER
            self._known.add(found)
        return found
