"""Options of stage two with several seeds."""

from typing import Annotated

from pydantic import Field

from icrl.app.root import Config
from icrl.config.options import OneOrMore, option


class SeedsConfig(Config):
    """Options of all programs, and the seeds."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], OneOrMore] = option(
        [0, 1, 2],
        "seeds of the models, all trained as one program; the run of seed k is <name>-seedk",
        may_change=True,
        stages="2",
    )
