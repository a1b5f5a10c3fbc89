"""Options of the programs of this extension, beside those of all programs."""

from typing import Literal

from icrl.app.root import Config
from icrl.config.options import PathName, option


class ExportConfig(Config):
    """Options of all programs, and the form of the export."""

    format: Literal["txt", "npz", "hdf5", "parquet", "minari"] = option(
        "txt", "file format; hdf5, parquet and minari need an extra", stages="export"
    )


class ImportConfig(Config):
    """Options of all programs, and where the histories are."""

    format: Literal["npz", "hdf5", "parquet", "minari"] = option(
        "npz", "file format; all but npz need an extra", stages="import"
    )
    path: PathName = option("none", "file or folder to import, relative to the working directory", stages="import")
    columns: dict[str, str] = option(
        {}, "names of columns in the imported file, by their names here: {obs: states}", stages="import"
    )
