"""Names of Atari games: as printed in the paper, in CamelCase, and as ALE names its ROM files."""

import difflib
import functools
from collections.abc import Iterable

from ale_py import roms

# The paper's score table, in its spelling and order.
ATARI_49 = (
    'Alien',
    'Amidar',
    'Assault',
    'Asterix',
    'Asteroids',
    'Atlantis',
    'Bank Heist',
    'Battle Zone',
    'BeamRider',
    'Bowling',
    'Boxing',
    'Breakout',
    'Centipede',
    'Chopper Command',
    'Crazy Climber',
    'Demon Attack',
    'Double Dunk',
    'Enduro',
    'Fishing Derby',
    'Freeway',
    'Frostbite',
    'Gopher',
    'Gravitar',
    'H.E.R.O',
    'Ice Hockey',
    'Jamesbond',
    'Kangaroo',
    'Krull',
    'Kung-Fu Master',
    "Montezuma's Revenge",
    'Ms. Pacman',
    'Name This Game',
    'Pong',
    'Private Eye',
    'Q*Bert',
    'River Raid',
    'Road Runner',
    'Robotank',
    'Seaquest',
    'Space Invaders',
    'Star Gunner',
    'Tennis',
    'Time Pilot',
    'Tutankham',
    'Up and Down',
    'Venture',
    'Video Pinball',
    'Wizard of Wor',
    'Zaxxon',
)

# Names that differ from the ROM's by more than case and punctuation.
_ALIASES = {'montezumasrevenge': 'montezuma_revenge', 'upanddown': 'up_n_down'}


def normalise(name: str) -> str:
    """'Q*Bert' -> 'qbert': lower-case letters and digits only."""
    return ''.join(c for c in name.lower() if c.isalnum())


@functools.cache
def _roms() -> dict[str, str]:
    return {**{normalise(rom): rom for rom in roms.get_all_rom_ids()}, **_ALIASES}


def resolve(name: str, others: Iterable[str] = ()) -> str:
    """ALE's ROM name for a game in any spelling; opens no file and no emulator.

    Args:
      name: A name such as 'Ms. Pacman', 'MsPacman' or 'ms_pacman'.
      others: Further names that an error may suggest.

    Raises:
      ValueError: No game has this name; the one-line message suggests similar names.
    """
    rom = _roms().get(normalise(name)) if isinstance(name, str) else None
    if rom is not None:
        return rom
    camel = {rom: ''.join(word.capitalize() for word in rom.split('_')) for rom in _roms().values()}
    camel.update((_roms()[normalise(game)], game) for game in ATARI_49)
    shown = {normalise(known): known for known in (*camel.values(), *others)}
    wanted = normalise(str(name))
    near = difflib.get_close_matches(wanted, shown, n=3, cutoff=0.65) or difflib.get_close_matches(
        wanted, shown, n=1, cutoff=0.0
    )
    raise ValueError(
        f'unknown environment {name!r}; did you mean '
        + ' or '.join(repr(shown[key]) for key in near)
        + '?'
    )
