"""An application by name: `shop:app` is the attribute `app` of the module `shop` in the current directory."""

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import fairlead.actors.runtime.ray_environment  # noqa: F401 - a module that is loaded may import Ray
from fairlead.app import App
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import QueueError

NAMES_SHOWN = 20  # In an error, at most.


class ReferenceNotFound(QueueError):
    """Nothing was found under a `module:attribute`.

    Do: run the command in the directory that holds the module, or set PYTHONPATH. `reason` and `nearest` describe the
    problem; an error with another remedy names it in `remedy`.
    """

    message = "not found; write MODULE:ATTRIBUTE, such as shop:app"


class NotImportable(QueueError):
    """The module of an application or a function raises an error when it is imported.

    Do: correct the module; `traceback` shows where it failed, without the frames of Python and of Fairlead.
    """

    message = "the module cannot be imported"


def load_app(reference: str) -> App:
    """Return the application that `reference` names.

    Raises:
      ReferenceNotFound: the module or the attribute does not exist, or it is not an `App`.
      NotImportable: the module raises an error when it is imported. Errors of Fairlead come as they are.
    """
    found = load_attribute(reference)
    if not isinstance(found, App):
        module = sys.modules[reference.partition(":")[0]]
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        raise ReferenceNotFound(
            reference=reference,
            reason=f"it is of type {type(found).__name__}, not a fairlead.App",
            apps=apps,
            remedy=f"name {module.__name__}:{apps[0]}"
            if apps
            else f"put `app = fairlead.App(...)` into {module.__name__}",
        )
    return found


def load_attribute(reference: str) -> Any:
    """Return the object that `reference` names, importing its module from the current directory if need be.

    Raises:
      ReferenceNotFound: the module or the attribute does not exist.
      NotImportable: the module raises an error when it is imported. Errors of Fairlead come as they are.
    """
    module_name, colon, attribute = reference.partition(":")
    if "/" in module_name or module_name.startswith(".") or module_name.endswith(".py"):
        raise _path_given(reference, module_name, attribute)
    if not colon or not module_name or not attribute:
        raise ReferenceNotFound(
            reference=reference,
            reason="it has no colon" if not colon else "a side of the colon is empty",
            remedy="write MODULE:ATTRIBUTE: the module, a colon, and the name of what it holds",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise _not_importable(module_name, error) from error  # The module exists, but not one that it imports.
        raise ReferenceNotFound(reference=reference, reason=f"no module {error.name}", searched=here) from None
    except (QueueError, StoreError):
        raise
    except Exception as error:
        raise _not_importable(module_name, error) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, dir(found), 1)
            raise ReferenceNotFound(
                reference=reference,
                reason=f"{module_name} has no attribute {attribute}",
                nearest=near[0] if near else None,
                has=_names_in(found),
                remedy=f"name something that {module_name} has, or add it there",
            )
        found = getattr(found, name)
    return found


def _not_importable(module_name: str, error: Exception) -> NotImportable:
    """Return an error with the frames of the user's files, and always with the last frame."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [] if isinstance(error, SyntaxError) else frames[-1:]
    shown = [frame for frame in frames if _is_users(frame.filename)] or [
        frame for frame in last if not _is_importing(frame.filename)
    ]
    if shown and last and shown[-1] is not last[0] and not _is_importing(last[0].filename):
        shown += last
    lines = [*traceback.format_list(shown), *traceback.format_exception_only(error)]
    reason = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
    return NotImportable(module=module_name, reason=reason, traceback="".join(lines).rstrip())


def _is_importing(file_name: str) -> bool:
    """Say whether a frame belongs to Python's import, or to this module."""
    return file_name.startswith("<frozen ") or file_name in (__file__, importlib.__file__)


def _is_users(file_name: str) -> bool:
    """Say whether a file is neither Python's own, nor an installed package's, nor Fairlead's."""
    if _is_importing(file_name) or file_name.startswith(str(Path(__file__).parent) + os.sep):
        return False
    installed = (sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not file_name.startswith(tuple(installed))


def _path_given(reference: str, path: str, attribute: str) -> ReferenceNotFound:
    """Return the error for the path of a file: a module is named as in `import`, from its directory."""
    file = Path(os.path.normpath(Path.cwd() / path))  # without "..", and with links unresolved
    module_name = file.name.removesuffix(".py")
    nearest = f"{module_name}:{attribute or 'ATTRIBUTE'}" if module_name.isidentifier() and path[-1] != "/" else None
    return ReferenceNotFound(
        reference=reference,
        reason="the module is a path; write it as `import` does",
        nearest=nearest,
        remedy=f"name {nearest}, and run the command in {file.parent}"
        if nearest
        else "name a module, such as shop:app",
    )


def _names_in(found: Any) -> list[str] | None:
    """Return the first public names of an object, without the modules that it imports; None: it has none."""
    held = getattr(found, "__dict__", {}).items()
    names = [name for name, value in held if not (name.startswith("_") or isinstance(value, ModuleType))]
    return names[:NAMES_SHOWN] or None
