"""What the colours' roles look like on white and on black: told apart by the colour-blind (after Okabe and Ito 2008)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reports.render.picture import Colour

ON_WHITE: Mapping[Colour, str] = MappingProxyType(
    {
        Colour.BLUE: "#0067a8",
        Colour.ORANGE: "#d55e00",
        Colour.GREEN: "#00805f",
        Colour.PURPLE: "#a8478a",
        Colour.SKY: "#3c9dd0",
        Colour.RED: "#c1121f",
        Colour.GREY: "#7a828c",
    }
)
ON_BLACK: Mapping[Colour, str] = MappingProxyType(
    {
        Colour.BLUE: "#5aa9e6",
        Colour.ORANGE: "#ff9a4d",
        Colour.GREEN: "#3fcf9f",
        Colour.PURPLE: "#e39ccb",
        Colour.SKY: "#9ad4f5",
        Colour.RED: "#ff7b7b",
        Colour.GREY: "#9aa4b0",
    }
)

# Few to many, in evenly rising contrast to the page.
RAMP_ON_WHITE = ("#e3eef8", "#b5d3ea", "#7fb1da", "#4a8cc4", "#2367a5", "#0b437c", "#062a52")
RAMP_ON_BLACK = ("#12304a", "#174a70", "#20689a", "#3488bf", "#5aa9dc", "#92ccf0", "#d3ecfb")
