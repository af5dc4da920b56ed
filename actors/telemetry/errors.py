"""An error as telemetry knows it: by its class. Its text may hold what the payload does."""

ERROR_TYPES_MAX = 20  # Counted apart by one actor. Each is a series of its own, for each kind, wherever metrics go.
OTHER = "_OTHER"  # The conventions' word for an error that is not named.

USERS_ERROR = "of_users_code"  # A field of log records whose exception the user's code raised: no fault of the product.

_QUALNAME, _DICT = type.__dict__["__qualname__"], type.__dict__["__dict__"]


def error_type(error: BaseException) -> str:
    """Return what OpenTelemetry calls `error.type`: `ConnectionError`, or with its module `shop.CardRefused`.

    The class is looked into past its metaclass, which is a user's code: whoever counts holds locks, and must not fail.
    """
    name: str = _QUALNAME.__get__(type(error))
    module = _DICT.__get__(type(error)).get("__module__")  # Classes of the interpreter's own have none.
    return f"{module}.{name}" if isinstance(module, str) else name


class ErrorTypes:
    """The error types that are counted apart: the first twenty that come, and one for the others."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[str] = set()

    def counted(self, found: str) -> str:
        """Return the type as which one is counted; "", which is none, stays."""
        if found and found not in self._known:
            if len(self._known) == ERROR_TYPES_MAX:
                return OTHER
            self._known.add(found)
        return found
