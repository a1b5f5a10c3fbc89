"""Source of histories that another program made: a name in their manifest, which cannot play."""

from typing import Any, ClassVar, Literal

from icrl.config.modules import command_of
from icrl.contracts import ConfigError
from icrl.sources import source
from icrl.sources.options import SourceConfig, named


class ImportedConfig(SourceConfig):
    learns: ClassVar[bool] = False

    name: Literal["imported"] = named("imported")


@source("imported", ImportedConfig)
class Imported:
    """Stand-in for the agents of imported histories, of which nothing but their lives is known."""

    @classmethod
    def check_spaces(cls, *_: Any) -> None:
        made = f"made by {command_of('import_histories')}, and cannot play"
        raise ConfigError(f"source.name=imported: {made}; choose another source")
