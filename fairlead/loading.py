"""An application by name: `shop:app` is the attribute `app` of the module `shop` in the current directory."""

import importlib
import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import actors.ray_environment  # noqa: F401 - a module that is loaded may import Ray
from fairlead.app import App
from zones.errors import QueueError


class NotFound(QueueError):
    """Nothing was found under a `module:attribute`.

    Do: run the command in the directory that holds the module, or set PYTHONPATH; `reason` and `nearest` say how far
    the search came.
    """

    message = "not found; write MODULE:ATTRIBUTE, such as shop:app"


def load_app(reference: str) -> App:
    """Return the application that `reference` names.

    Raises:
      NotFound: the module or the attribute does not exist, or it is not an `App`.
      Whatever the module itself raises when it is imported.
    """
    found = load_attribute(reference)
    if not isinstance(found, App):
        module = sys.modules[reference.partition(":")[0]]
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        raise NotFound(reference=reference, reason=f"it is a {type(found).__name__}, not a fairlead.App", apps=apps)
    return found


def load_attribute(reference: str) -> Any:
    """Return the object that `reference` names, importing its module from the current directory if need be.

    Raises:
      NotFound: the module or the attribute does not exist.
      Whatever the module itself raises when it is imported.
    """
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise NotFound(reference=reference, reason="it has no colon" if not colon else "a side of the colon is empty")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise  # the module is there, and something that it imports is not
        raise NotFound(reference=reference, reason=f"no module {error.name}", searched=here) from None
    for name in attribute.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, dir(found), 1)
            raise NotFound(
                reference=reference,
                reason=f"{module_name} has no attribute {attribute}",
                nearest=near[0] if near else None,
            )
        found = getattr(found, name)
    return found
